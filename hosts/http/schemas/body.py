"""The bases of the bodies that clients send and receive."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ....engine.requests import LONGEST_ID

RequestId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
"""An id that the client chose: a request that is sent again under it is not carried out twice."""


class Body(BaseModel):
    """A body that a client sends. It has no other keys, and a text is not taken for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """A body that a client receives. A later version may add keys."""


class Repeatable(Body):
    """A request that may be sent again under its `request_id`: it has the same result, and is carried out once."""

    request_id: RequestId | None = None
