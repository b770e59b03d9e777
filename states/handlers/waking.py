"""Rows about the schedule: it changes, or a moment of it has come and the conversation wakes up."""

from __future__ import annotations

from ..context import Context
from ..events import ScheduleChanged, WakeUp
from ..state import Busy, State
from ..states import Failed, Idle
from ..step_builder import StepBuilder
from .busy import waiting_for
from .resting import begin_turn_from_rest


def change_schedule(step: StepBuilder[State], event: ScheduleChanged, context: Context) -> State:
    """The conversation wakes up at other moments, or no longer. A wake-up that waits in the inbox stays there."""
    step.wake = event.next_wake
    return step.same()


def wake_up(step: StepBuilder[Idle | Failed], event: WakeUp, context: Context) -> None:
    """The task of the schedule begins a turn, together with the messages that wait since a turn failed."""
    _enter_inbox(step, event, context)
    begin_turn_from_rest(step, event.at, context)


def keep_wake_up(step: StepBuilder[Busy], event: WakeUp, context: Context) -> Busy:
    """The task waits in the inbox for a turn of its own."""
    _enter_inbox(step, event, context)
    return step.same(inbox=step.inbox)


def _enter_inbox(step: StepBuilder[State], event: WakeUp, context: Context) -> None:
    """At most one wake-up waits: the task does not become more urgent because the conversation has had no time for
    it."""
    step.wake = event.next_wake
    if not step.has_wake_up:
        step.inbox = (*step.inbox, waiting_for(step, event, context))
