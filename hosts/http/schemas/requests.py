"""What a client asks of a conversation, and what it receives once that is stored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ....engine.projections.turn import BaseTurn
from ....engine.projections.updates.schema import data_model
from ....states.policy.policy import WhenBusy
from .body import Answer, Body, RequestId
from .described import DescribedBy

TurnJson = Annotated[dict[str, Any], DescribedBy(data_model(BaseTurn))]
"""A turn."""


class NewMessage(Body):
    """A message of a user. It is taken once, however often it is sent under its `message_id`."""

    text: str
    images: list[str] = Field(default_factory=list)
    message_id: RequestId | None = None
    when_busy: WhenBusy | None = None


class SentMessage(Answer):
    """A message that is stored, and the turn that takes it, as of this moment."""

    message_id: str
    turn: TurnJson
