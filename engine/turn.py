"""What a host gets back: how a turn stands, when it has ended or waits for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..states.log import LogEntry
from ..states.messages import ToolCall, Usage
from ..states.questions import UserQuestion
from ..states.states import AwaitingPerson, AwaitingUserResponse
from ..states.transcript import Transcript, words
from ..states.turn import TurnEnded

Status = Literal[
    "completed", "incomplete", "failed", "cancelled", "awaiting_user", "awaiting_approval", "running", "queued"
]
"""How a turn stands; `running` and `queued` only where nobody waited for it to end (`send(wait=False)`): no turn has
taken a queued message yet, so its number is 0."""


@dataclass(frozen=True)
class Turn:
    """How a turn stands.

    `reply` is what the user receives, "" if nothing. `final_content` is the text for display, None if there is none.
    `questions`, and `call_id` of the call that asks them, are set while it waits for an answer, `call_id` and `call`
    while it waits for somebody to allow that call; `failure` is one sentence if it failed. `truncated` tells that the
    provider cut the text off.
    """

    number: int
    status: Status
    reply: str = ""
    final_content: str | None = None
    truncated: bool = False
    questions: tuple[UserQuestion, ...] = ()
    call_id: str | None = None
    call: ToolCall | None = None
    failure: str | None = None
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def that_ended(cls, entry: LogEntry, ended: TurnEnded) -> Turn:
        """A turn that this entry ended. `Pure.`"""
        said = ended.final_content
        content = None if said is None else words(entry.event, said)
        return cls(
            number=ended.turn,
            status=ended.status,
            reply=content or "",
            final_content=content,
            truncated=ended.truncated,
            failure=ended.failure.sentence if ended.failure else None,
            usage=ended.usage,
        )

    @classmethod
    def that_waits(cls, state: AwaitingPerson, transcript: Transcript) -> Turn:
        """A turn that waits for a person. `Pure.`"""
        asks = isinstance(state, AwaitingUserResponse)
        return cls(
            number=state.turn.number,
            status="awaiting_user" if asks else "awaiting_approval",
            questions=state.questions if isinstance(state, AwaitingUserResponse) else (),
            call_id=state.call.call_id,
            call=None if asks else transcript.call(state.call.call_id),
            usage=state.turn.usage,
        )
