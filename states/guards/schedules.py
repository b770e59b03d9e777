"""Guards about wake-ups and schedules."""

from __future__ import annotations

from ..context import Context
from ..events import ScheduleChanged, WakeUp
from ..state import State
from ..step_builder import StepBuilder
from ..values.inbox import MAX_INBOX


def is_stale(step: StepBuilder[State], event: WakeUp, context: Context) -> bool:
    """The conversation does not wait for this wake-up: it has happened already, or the schedule has changed."""
    return event.due != step.wake


def has_room_for_wake_up(step: StepBuilder[State], event: WakeUp, context: Context) -> bool:
    """The inbox is not full, or holds a wake-up already, which stands for this one too."""
    return len(step.inbox) < MAX_INBOX or step.has_wake_up


def may_have_schedule(step: StepBuilder[State], event: ScheduleChanged, context: Context) -> bool:
    """A sub-agent has no schedule: it has one task, and closes when it is done."""
    return event.schedule is None or context.role != "sub_agent"
