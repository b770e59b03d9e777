"""A turn as a host receives it, when it has ended or waits for a person.

`Turn` is the union of one small class for each status, so that a type checker knows what a turn holds once a program
has asked for its class or its status: a `WaitsForAnswer` has questions, a `WaitsForApproval` has a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ...states.values.messages import ToolCall, Usage
from ...states.values.questions import UserQuestion
from ...states.values.turn import LimitKind
from .updates.data import data_of
from .updates.message_view import call_data

TurnStatus = Literal[
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
"""The status of a turn. `running` and `queued` occur only if the caller does not wait (`send(wait=False)`)."""


@dataclass(frozen=True, kw_only=True)
class BaseTurn:
    """What every turn has.

    `number` counts the turns of the conversation from 1. `reply` is the answer: what was said to the user by a tool,
    otherwise the text if the policy delivers it, otherwise "". `final_content` is the text for display, or None.
    `user_response` is what was said to the user by a tool, or None; several speeches are joined by a blank line.
    `deliveries` are all texts that go to the user, in order; a policy that delivers text as well as speech may deliver
    more than the reply holds. A turn that has ended without any is `silent`. While a turn waits for a person, these
    fields describe it up to that point.

    `questions`, and the `call_id` of the call that asks them, are set while the turn waits for an answer; `call_id` and
    `call` while it waits for somebody to approve that call, or to say whether it ran. `failure` is one sentence if the
    turn failed or its work was not verified. `limit` names the limit of the policy that ended the turn, if one did.
    `truncated`: the provider cut the text off. `profile` is the name of the turn's profile, or "" if it has none.
    """

    number: int
    status: TurnStatus
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
    limit: LimitKind | None = None
    usage: Usage = field(default_factory=Usage)
    profile: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """The turn as JSON, with the keys of the update `turn_ended`; the number is its `turn`. While it waits for a
        person, it also has `call_id`, and `questions` or `call`."""
        waits = {name: value for name, value in data_of(self).items() if name in ("questions", "call_id")}
        return {
            "turn": self.number,
            "status": self.status,
            "is_complete": self.status == "completed",
            "reply": self.reply,
            "final_content": self.final_content,
            "user_response": self.user_response,
            "deliveries": list(self.deliveries),
            "silent": self.silent,
            "truncated": self.truncated,
            "failure": self.failure,
            "limit": self.limit,
            "usage": self.usage.model_dump(mode="json"),
            "profile": self.profile,
            **waits,
            **({} if self.call is None else {"call": call_data(self.call)}),
        }


# --- turns that have ended


@dataclass(frozen=True, kw_only=True)
class CompletedTurn(BaseTurn):
    """The turn ended with an answer."""

    status: Literal["completed"] = "completed"


@dataclass(frozen=True, kw_only=True)
class IncompleteTurn(BaseTurn):
    """The turn ended at a limit, which `limit` names, or without what the policy requires. `failure` says why if its
    work was not accepted."""

    status: Literal["incomplete"] = "incomplete"


@dataclass(frozen=True, kw_only=True)
class FailedTurn(BaseTurn):
    """The turn could not go on. `failure` is one sentence for people."""

    status: Literal["failed"] = "failed"
    failure: str = field()  # required here: a field without `field()` would keep the default of the base


@dataclass(frozen=True, kw_only=True)
class CancelledTurn(BaseTurn):
    """A person stopped the turn."""

    status: Literal["cancelled"] = "cancelled"


# --- turns that wait for a person


@dataclass(frozen=True, kw_only=True)
class WaitsForAnswer(BaseTurn):
    """The model asks `questions`, by the call `call_id`. Go on with `Conversation.answer` or `decline`."""

    status: Literal["awaiting_user"] = "awaiting_user"
    questions: tuple[UserQuestion, ...] = field()
    call_id: str = field()


@dataclass(frozen=True, kw_only=True)
class WaitsForApproval(BaseTurn):
    """`call` runs only if a person allows it. Go on with `Conversation.approve`."""

    status: Literal["awaiting_approval"] = "awaiting_approval"
    call_id: str = field()
    call: ToolCall = field()


@dataclass(frozen=True, kw_only=True)
class WaitsForResolution(BaseTurn):
    """A crash interrupted `call`, and it is unknown whether it ran. Go on with `Conversation.resolve`."""

    status: Literal["in_doubt"] = "in_doubt"
    call_id: str = field()
    call: ToolCall = field()


# --- turns that nobody waited for


@dataclass(frozen=True, kw_only=True)
class RunningTurn(BaseTurn):
    """The turn is under way; the caller did not wait for it."""

    status: Literal["running"] = "running"


@dataclass(frozen=True, kw_only=True)
class QueuedTurn(BaseTurn):
    """No turn has taken the message yet; the caller did not wait for one. So the number is 0."""

    status: Literal["queued"] = "queued"
    number: int = 0


EndedTurn: TypeAlias = CompletedTurn | IncompleteTurn | FailedTurn | CancelledTurn
"""A turn that has ended."""

WaitingTurn: TypeAlias = WaitsForAnswer | WaitsForApproval | WaitsForResolution
"""A turn that waits for a person."""

Turn: TypeAlias = (
    CompletedTurn
    | IncompleteTurn
    | FailedTurn
    | CancelledTurn
    | WaitsForAnswer
    | WaitsForApproval
    | WaitsForResolution
    | RunningTurn
    | QueuedTurn
)
"""A turn of a conversation. Narrow it by its class or by its `status`."""
