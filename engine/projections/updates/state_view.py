"""A state as watchers see it: what it waits for, and the ids that a request about it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from ....states.policy import Policy, models_of
from ....states.states import (
    AwaitingApproval,
    Compacting,
    Failed,
    InDoubt,
    LlmRequesting,
    RetryWaiting,
    State,
)
from ....states.transcript import Transcript
from ....states.values.messages import Approver
from ....states.values.questions import UserQuestion
from .data import data_of
from .message_view import arguments_data

StateType = Literal[
    "idle",
    "profile_selecting",
    "memory_recalling",
    "llm_requesting",
    "retry_waiting",
    "tool_executing",
    "awaiting_user_response",
    "awaiting_approval",
    "awaiting_sub_agents",
    "verifying",
    "summarizing",
    "compacting",
    "cancelling",
    "in_doubt",
    "failed",
    "closed",
]
"""The types of all states, in snake_case."""

WAITS: frozenset[StateType] = frozenset(("awaiting_user_response", "awaiting_approval", "in_doubt"))
"""The states in which a turn always waits for a person."""


@dataclass(frozen=True, kw_only=True)
class StateView:
    """A state, without what only the machine needs.

    `turn` is the newest turn, 0 before the first one, and `inbox` has the ids of the messages that wait for a turn.
    While a model is asked, `request` is the id of that request, `attempt` counts the requests to this `model`; while
    the next attempt is waited for, it is `due` at that moment (ISO 8601). `questions` and `call_id` are set while the
    turn waits for an answer, also to what a sub-agent asks; `call_id`, `name` and `arguments` while it waits for a
    person to approve that call, or to say whether it ran; `approval_by` is `operator` where nobody else may approve it.
    `raw_arguments` is set where the model did not write a JSON object. A failure has a `kind` and a `sentence` for
    people. `left_out` is set in the `state_change` with which a turn goes on although something failed or was not there
    in time, such as the choice of a profile or a search of older conversations: what it goes on without, and why.
    """

    type: StateType
    turn: int
    request: int | None = None
    attempt: int | None = None
    model: str | None = None
    due: str | None = None
    questions: tuple[UserQuestion, ...] = ()
    call_id: str | None = None
    name: str | None = None
    arguments: dict[str, Any] | None = None
    raw_arguments: str | None = None
    approval_by: Approver = "user"
    kind: str | None = None
    sentence: str | None = None
    inbox: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def waits_for_person(self) -> bool:
        """Whether the turn waits for a person, also for one who is to answer a sub-agent."""
        return self.type in WAITS or bool(self.questions)

    @property
    def data(self) -> dict[str, Any]:
        """The state as JSON: its type, and what it tells."""
        return {"type": self.type, "data": data_of(self)}


def view_of(state: State, transcript: Transcript, policy: Policy) -> StateView:
    """Return a state as watchers see it. `Pure.`"""
    return StateView(
        type=cast("StateType", state.type),
        turn=state.book.turn,
        inbox=tuple(one.event_id for one in getattr(state, "inbox", ()) if one.audience is None),
        **_details(state, transcript, policy),
    )


def _details(state: State, transcript: Transcript, policy: Policy) -> dict[str, Any]:
    details = _asked_of_person(state, transcript)
    match state:
        case LlmRequesting(effect_id=request):
            details["request"] = request
        case RetryWaiting(timer=timer):
            details["due"] = timer.due.isoformat()
        case Failed(kind=kind, sentence=sentence):
            details |= {"kind": kind, "sentence": sentence}
        case _:
            pass
    if isinstance(state, LlmRequesting | RetryWaiting | Compacting):
        details["attempt"] = state.attempt
    if isinstance(state, LlmRequesting | RetryWaiting):
        details["model"] = models_of(policy, state.turn.profile)[state.turn.model].name
    return details


def _asked_of_person(state: State, transcript: Transcript) -> dict[str, Any]:
    if (asked := state.open_question) is not None:
        return {"questions": asked.questions, "call_id": asked.call_id}
    if isinstance(state, AwaitingApproval | InDoubt):
        call = state.call
        shown = {
            "call_id": call.call_id,
            "name": call.name,
            "approval_by": call.approval_by if call.approval else "user",
        }
        return shown | arguments_data(transcript.call(call.call_id))
    return {}
