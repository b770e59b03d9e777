"""What must hold of scheduled wake-ups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from .....states.context import Context
from .....states.events import ScheduleChanged, WakeUp
from .....states.states import Closed
from .....states.values.acts import Schedule
from ...storage.disk import Row
from .tree_ending import TreeEnding

OF_ENGINE = "wake-"
"""How the ids of the wake-ups begin that an engine requests. Users request some, too, at any time."""


def wake_ups_fire_once(ending: TreeEnding) -> Iterator[str]:
    """Each wake-up that fires was the next one, is due, and names the first moment of the schedule that is still to
    come: however many were missed, they fire once. Nothing else moves the next wake-up but a change of the schedule."""
    tree = ending.tree
    for agent_id in tree.agents:
        rows = tree.rows(agent_id)
        context = Context().after(rows[0].event)
        for before, row in pairwise(rows):
            schedule, context = context.schedule, context.after(row.event)
            if isinstance(row.event, WakeUp):
                name = f"the wake-up of {agent_id} that was due at {row.event.due}"
                yield from (f"{name} {fault}" for fault in _faults(row.event, before, schedule, ending.was_set_back))
            elif _is_moved(before, row):
                yield f"{agent_id} is to wake up at {row.state.book.wake} after {row.event.type}"


def _is_moved(before: Row, row: Row) -> bool:
    """Whether the next wake-up is another one after a step that has nothing to do with it."""
    ends = isinstance(row.state, Closed) and row.state.book.wake is None
    return row.state.book.wake != before.state.book.wake and not ends and not isinstance(row.event, ScheduleChanged)


def _faults(event: WakeUp, before: Row, schedule: Schedule | None, was_set_back: bool) -> Iterator[str]:
    """What is wrong with a wake-up by this schedule, behind this step. Between the look at the clock and the request
    the clock may have been set back."""
    if schedule is None or event.due != before.state.book.wake:
        yield f"fired, and the next one was due at {before.state.book.wake}"
        return
    is_early = event.at < event.due
    if not event.event_id.startswith(OF_ENGINE) or (is_early and was_set_back):
        return
    if is_early:
        yield f"fired at {event.at}"
    if event.next_wake is None or event.next_wake <= event.at or not _is_next(event, schedule):
        yield f"fired at {event.at}, and the next one is due at {event.next_wake}"


def _is_next(event: WakeUp, schedule: Schedule) -> bool:
    """Whether no moment of the schedule lies between the wake-up and the next one. Of cron expressions nothing is known
    here."""
    if schedule.every is None or event.next_wake is None:
        return True
    every = timedelta(seconds=schedule.every)
    return not (event.next_wake - event.due) % every and event.next_wake - every <= event.at
