"""The steps of a log, computed again from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...persistence.errors import Damaged
from ...states.context import Context
from ...states.effects import Effect
from ...states.errors import Refused, StoreError
from ...states.events import Opened
from ...states.machine import begin, transition
from ...states.states import AnyState, Idle, State
from ...states.step import LogEntry, Step


class ReplayedStep(NamedTuple):
    """A step of a log: its entry, the states before and after it, the context before it, and the effects that the
    event leads to now."""

    entry: LogEntry
    before: AnyState
    after: AnyState
    context: Context
    effects: tuple[Effect, ...]


_BEGINNING, _NO_CONTEXT = Idle(), Context()


def replayed_steps(
    entries: Iterable[LogEntry], state: AnyState = _BEGINNING, context: Context = _NO_CONTEXT
) -> Iterator[ReplayedStep]:
    """Yield the steps of these entries, the first of a log, or those that follow this state with this context. Raises
    `Refused` if the machine does not take an event that it took then. `Pure.`"""
    for entry in entries:
        event = entry.event
        step = begin(event) if isinstance(event, Opened) else transition(state, event, context)
        yield ReplayedStep(entry, state, step.state, context, step.effects)
        state, context = step.state, context.after(event)


def repeated_step(entry: LogEntry, state: State, context: Context) -> Step:
    """Return the step that the entry was stored with; `state` and `context` are those before it. Raises `Damaged` if
    the entry does not follow that state, and `StoreError` if the machine makes another step of the event now. `Pure.`
    """
    before = state.book.seq
    if entry.seq != before + 1:
        raise Damaged(entry.seq, f"Step {entry.seq} does not follow step {before}.")
    try:
        step = transition(state, entry.event, context)
    except Refused:
        step = None
    if step is None or step.ignored or step.effects != entry.effects:
        raise StoreError(f"Step {entry.seq} was made by another version of the state machine.")
    return step
