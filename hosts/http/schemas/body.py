"""The bases of the bodies that clients send and receive."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ....engine.requests import LONGEST_ID

BODY_REFUSALS = (400, 408, 413, 415, 422)
"""The statuses with which a body is refused: not JSON, too slow, too large, of another type, not as declared."""

LARGEST_NUMBER = 2**53 - 1
"""The largest number that every JSON reader takes exactly."""

RequestId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_ID,
        description="An id that the client chooses. A request that is sent again under it is carried out once.",
    ),
]


class Body(BaseModel):
    """A body that a client sends. It has no other keys, and a text is not taken for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Repeatable(Body):
    """A request that may be sent again: it has the same result, and is carried out once."""

    request_id: RequestId | None = None


class Answer(BaseModel):
    """A body that a client receives. A later version may add keys."""
