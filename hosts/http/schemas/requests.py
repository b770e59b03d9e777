"""What a client asks of a conversation, and what it receives once that is stored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ....states.events import Resolution
from ....states.policy import WhenBusy
from .body import LARGEST_NUMBER, Answer, Body, Repeatable, RequestId
from .states import StateJson, TurnJson

CallId = Annotated[str, Field(min_length=1, description="The call of a tool that the conversation waits for.")]


class NewMessage(Body):
    """A message of a user. It is taken once, however often it is sent under its `message_id`."""

    text: str
    images: Annotated[list[str], Field(default_factory=list, description="URLs with https: or data:")]
    message_id: RequestId | None = None
    when_busy: WhenBusy | None = None


class GivenAnswers(Repeatable):
    """The answers to the questions of the call `call_id`, by the text of the question: an answer, or a list of them
    where several may be chosen. Without `call_id` they are for the questions that are open when they arrive."""

    answers: dict[str, str | list[str]]
    annotations: dict[str, dict[str, str]] | None = None
    call_id: CallId | None = None


class Declined(Repeatable):
    """Nobody answers the questions of the call `call_id`, or those that are open."""

    call_id: CallId | None = None


class CancelRequest(Repeatable):
    """Stop the turn with this number, or the one that runs when this arrives."""

    turn: Annotated[int, Field(ge=0, le=LARGEST_NUMBER)] | None = None


class Approval(Repeatable):
    """Whether a call may run. A `note` tells the model why not; `arguments` replace those that the model wrote."""

    call_id: CallId
    allowed: bool
    note: str | None = None
    arguments: dict[str, Any] | None = None


class Verdict(Repeatable):
    """What became of a call in doubt; with `again` it runs once more."""

    call_id: CallId
    verdict: Resolution


class Withdrawal(Repeatable):
    """A message that waits, and that no turn shall take."""

    message_id: RequestId


class SentMessage(Answer):
    """A message that is stored, and the turn that takes it, as of this moment."""

    message_id: str
    turn: TurnJson


class TurnAnswer(Answer):
    """The turn that the request concerns, as of this moment."""

    turn: TurnJson


class CancelAnswer(Answer):
    """`no_op`: nothing ran, or another turn than the one that was meant."""

    no_op: bool


class StateAnswer(Answer):
    """The state of the conversation as of this moment."""

    state: StateJson
