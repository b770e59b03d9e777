"""What every wait for a person shares: how it ends when the person acts, and how it ends at its deadline."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..context import Context
from ..effects import Abort
from ..events import DeadlineReached
from ..junctions.human_input import leave_out_wait, take_human_input
from ..state import AwaitingPerson
from ..step_builder import StepBuilder

P = TypeVar("P", bound=AwaitingPerson)


def end_wait(step: StepBuilder[P], at: datetime, context: Context) -> None:
    """End the wait because the person acted, and abort the deadline."""
    take_human_input(step, at, context, step.state.since)
    abort_deadline(step)


def abort_deadline(step: StepBuilder[P]) -> None:
    """Abort the timer that limits the wait, if there is one."""
    if step.state.deadline is not None:
        step.add_effect(Abort(effect_id=step.state.deadline.effect_id))


def end_wait_at_deadline(step: StepBuilder[P], event: DeadlineReached) -> None:
    """End the wait because nobody acted. The time of the wait does not count against the turn's limit."""
    leave_out_wait(step, step.state.since, event.at)
