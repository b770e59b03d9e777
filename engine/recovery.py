"""What a conversation is told when a process takes it up that another one left in the middle.

The log says what was asked of the world and was not answered; nothing is guessed. The machine decides what becomes of
each: what may be asked for again is asked for again, a tool runs again or not by its crash contract.
"""

from __future__ import annotations

from datetime import datetime

from ..states.events import Report, Resumed, ToolInterrupted
from ..states.round import Round
from ..states.states import State, pending


def reports(state: State, at: datetime) -> tuple[Report, ...]:
    """What to report of a state that was read from the store, in order; nothing where nothing was in flight. `Pure.`"""
    if not pending(state):
        return ()
    round_: Round | None = getattr(state, "round", None)
    running = () if round_ is None else round_.running
    interrupted = (ToolInterrupted(at=at, call_id=one.call_id) for one in running if one.reconciling is None)
    return (Resumed(at=at, open=tuple(sorted(pending(state)))), *interrupted)
