"""A turn as a host receives it, when it has ended or waits for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...states.policy.policy import Policy
from ...states.projections.transcript import Transcript
from ...states.replies.delivery_rules import spoken_and_delivered
from ...states.replies.reply_text import text_of_reply
from ...states.states import AwaitingApproval, AwaitingPerson, AwaitingUserResponse, InDoubt, State
from ...states.values.messages import Said, ToolCall, Usage
from ...states.values.questions import UserQuestion
from ...states.values.turn import Delivered, TurnEnded

Status = Literal[
    "completed",
    "incomplete",
    "failed",
    "cancelled",
    "awaiting_user",
    "awaiting_approval",
    "in_doubt",
    "running",
    "queued",
]
"""The status of a turn. `running` and `queued` occur only if the caller does not wait (`send(wait=False)`). No turn has
taken a queued message yet, so its number is 0."""

_WAITS: dict[type[State], Status] = {
    AwaitingUserResponse: "awaiting_user",
    AwaitingApproval: "awaiting_approval",
    InDoubt: "in_doubt",
}


@dataclass(frozen=True)
class Turn:
    """A turn that has ended or waits for a person.

    `reply` is the answer: what was said to the user by a tool, otherwise the text if the policy delivers it, otherwise
    "". `final_content` is the text for display, or None. `user_response` is what was said to the user by a tool, or
    None; several speeches are joined by a blank line. `deliveries` are all texts that go to the user, in order; a
    policy that delivers text as well as speech may deliver more than the reply holds. A turn that has ended without any
    is `silent`. While a turn waits for a person, these fields describe it up to that point.

    `questions`, and the `call_id` of the call that asks them, are set while the turn waits for an answer; `call_id` and
    `call` while it waits for somebody to approve that call, or to say whether it ran. `failure` is one sentence if the
    turn failed or its work was not verified. `truncated`: the provider cut the text off.
    """

    number: int
    status: Status
    reply: str = ""
    final_content: str | None = None
    user_response: str | None = None
    deliveries: tuple[str, ...] = ()
    silent: bool = False
    truncated: bool = False
    questions: tuple[UserQuestion, ...] = ()
    call_id: str | None = None
    call: ToolCall | None = None
    failure: str | None = None
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def from_end(cls, ended: TurnEnded, transcript: Transcript, policy: Policy) -> Turn:
        """Return a turn that has ended. The transcript must hold its last step. `Pure.`"""
        final = ended.final_content
        return cls(
            number=ended.turn,
            status=ended.status,
            final_content=None if final is None else text_of_reply(transcript.words(final), policy),
            **_received_texts(ended.user_response, ended.deliveries, transcript, policy),
            silent=ended.silent,
            truncated=ended.truncated,
            failure=ended.failure.sentence if ended.failure else None,
            usage=ended.usage,
        )

    @classmethod
    def from_waiting(cls, state: AwaitingPerson | InDoubt, transcript: Transcript, policy: Policy) -> Turn:
        """Return a turn that waits for a person, with what the user has received of it so far. `Pure.`"""
        asks = isinstance(state, AwaitingUserResponse)
        return cls(
            number=state.turn.number,
            status=_WAITS[type(state)],
            questions=state.questions if isinstance(state, AwaitingUserResponse) else (),
            call_id=state.call.call_id,
            call=None if asks else transcript.call(state.call.call_id),
            **_received_texts(spoken_and_delivered(state.turn), state.turn.deliveries, transcript, policy),
            usage=state.turn.usage,
        )


def _received_texts(
    spoken: Sequence[Said], delivered: Sequence[Delivered], transcript: Transcript, policy: Policy
) -> dict[str, Any]:
    """Return the fields that hold what the user received of a turn."""
    by_tool = tuple(text_of_reply(transcript.words(said), policy) for said in spoken)
    deliveries = tuple(text_of_reply(transcript.words(one.said), policy) for one in delivered)
    return {
        "reply": "\n\n".join(by_tool or deliveries),
        "user_response": "\n\n".join(by_tool) if by_tool else None,
        "deliveries": deliveries,
    }
