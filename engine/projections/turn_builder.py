"""Makes the turns that hosts receive, out of what the log says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard, get_args

from ...states.policy import Policy
from ...states.replies import spoken_and_delivered, text_of_delivery, text_of_reply
from ...states.states import STATES, AwaitingApproval, AwaitingPerson, AwaitingSubAgents, InDoubt, State
from ...states.transcript import Transcript
from ...states.values.messages import Said
from ...states.values.turn import Delivered, TurnEnded
from .turn import (
    CancelledTurn,
    CompletedTurn,
    EndedTurn,
    FailedTurn,
    IncompleteTurn,
    WaitingTurn,
    WaitsForAnswer,
    WaitsForApproval,
    WaitsForResolution,
)


def ended_turn(ended: TurnEnded, transcript: Transcript, policy: Policy) -> EndedTurn:
    """Return a turn that has ended. The transcript must hold its last step. `Pure.`"""
    final = ended.final_content
    described: dict[str, Any] = {
        "number": ended.turn,
        "final_content": None if final is None else text_of_reply(transcript.words(final), policy),
        **_received_texts(ended.user_response, ended.deliveries, transcript, policy),
        "silent": ended.silent,
        "truncated": ended.truncated,
        "failure": ended.failure.sentence if ended.failure else None,
        "limit": ended.limit,
        "usage": ended.usage,
        "profile": ended.profile,
    }
    match ended.status:
        case "completed":
            return CompletedTurn(**described)
        case "incomplete":
            return IncompleteTurn(**described)
        case "failed":
            return FailedTurn(**{**described, "failure": described["failure"] or ""})
        case "cancelled":
            return CancelledTurn(**described)


WaitsForPerson: TypeAlias = AwaitingPerson | InDoubt | AwaitingSubAgents
"""The states in which a turn may wait for a person."""

_MAY_WAIT = frozenset(state for state in STATES if issubclass(state, get_args(WaitsForPerson)))


def waits_for_person(state: State) -> TypeGuard[WaitsForPerson]:
    """Whether the turn waits for a person; while sub-agents work, that is so if one of them asks. `Pure.`"""
    return type(state) in _MAY_WAIT and (isinstance(state, InDoubt) or state.waiting_call_id is not None)


def waiting_turn(state: WaitsForPerson, transcript: Transcript, policy: Policy) -> WaitingTurn:
    """Return a turn that waits for a person, with what the user has received of it so far. `Pure.`"""
    spoken = spoken_and_delivered(state.turn)
    described: dict[str, Any] = {
        "number": state.turn.number,
        "call_id": state.call.call_id,
        **_received_texts(spoken, state.turn.deliveries, transcript, policy),
        "usage": state.turn.usage,
        "profile": state.turn.profile,
    }
    if (asked := state.open_question) is not None:
        return WaitsForAnswer(**{**described, "questions": asked.questions, "call_id": asked.call_id})
    call = transcript.call(state.call.call_id)
    if isinstance(state, AwaitingApproval):
        return WaitsForApproval(call=call, **described)
    return WaitsForResolution(call=call, **described)


def _received_texts(
    spoken: Sequence[Said], delivered: Sequence[Delivered], transcript: Transcript, policy: Policy
) -> dict[str, Any]:
    """Return the fields that hold what the user received of a turn."""
    by_tool = tuple(text_of_reply(transcript.words(said), policy) for said in spoken)
    deliveries = tuple(text_of_delivery(transcript.words(one.said), policy, relayed=one.relayed) for one in delivered)
    return {
        "reply": "\n\n".join(by_tool or deliveries),
        "user_response": "\n\n".join(by_tool) if by_tool else None,
        "deliveries": deliveries,
    }
