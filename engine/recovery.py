"""The reports by which a conversation learns that an earlier process has left it in the middle.

The state says which effects were not answered; nothing is guessed. The machine decides what follows from the reports:
it asks again for what may be asked for again, and runs a tool again or not, by its crash contract.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime

from ..states.effects import TOOL_RUNS
from ..states.events import Report, Resumed, ToolInterrupted
from ..states.states import AwaitingUserResponse, Cancelling, InRound, State
from ..states.values.round import Round


def reports(state: State, at: datetime, left: frozenset[int], *, holds_call: bool = False) -> tuple[Report, ...]:
    """Return the reports about what is in flight in this state and was `left`, in order; none if nothing was.
    `holds_call` says that the call which waits for a person does so here. `Pure.`

    Calls that must not run twice come first. Nothing is tried again for them, so a process that ends before it has
    reported the rest does not count as a failed attempt, and a person is asked about them however often that happens.
    A call that was waiting for the answer of a person is lost with its process, and nothing else is in flight then but
    the deadline, which ends with the question.
    """
    if isinstance(state, AwaitingUserResponse) and state.suspends:
        return () if holds_call else (ToolInterrupted(at=at, call_id=state.call.call_id),)
    in_flight = {effect_id: kind for effect_id, kind in state.in_flight().items() if effect_id in left}
    if not isinstance(state, InRound):
        return _resumed(in_flight.keys(), at)
    running = [effect_id for effect_id, kind in in_flight.items() if kind in TOOL_RUNS]
    interrupted = {
        effect_id: ToolInterrupted(at=at, call_id=state.round.call(effect_id).call_id) for effect_id in running
    }
    first = frozenset() if isinstance(state, Cancelling) else _never_again(state.round) & interrupted.keys()
    rest = [report for effect_id, report in interrupted.items() if effect_id not in first]
    doubts = [report for effect_id, report in interrupted.items() if effect_id in first]
    return (*doubts, *_resumed(in_flight.keys() - first, at), *rest)


def _resumed(open_: Set[int], at: datetime) -> tuple[Report, ...]:
    return (Resumed(at=at, open=tuple(sorted(open_))),) if open_ else ()


def _never_again(round_: Round) -> frozenset[int]:
    """Return the effects whose calls must not run twice."""
    return frozenset(one.effect_id for one in round_.running if round_.named(one.call_id).crash == "at_most_once")
