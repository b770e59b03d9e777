"""What every wait for a person shares: how it ends when the person acts, and how it ends at its deadline."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..effects import Abort
from ..events import DeadlineReached
from ..state import AwaitingPerson
from ..step_builder import StepBuilder
from ..values.value import later

P = TypeVar("P", bound=AwaitingPerson)


def end_wait(step: StepBuilder[P], at: datetime) -> None:
    """End the wait because the person acted: the turn's limits are counted anew, and the deadline is aborted."""
    step.reset_limits(at)
    abort_deadline(step)


def abort_deadline(step: StepBuilder[P]) -> None:
    """Abort the timer that limits the wait, if there is one."""
    if step.state.deadline is not None:
        step.add_effect(Abort(effect_id=step.state.deadline.effect_id))


def end_wait_at_deadline(step: StepBuilder[P], event: DeadlineReached) -> None:
    """End the wait because nobody acted. The time of the wait does not count against the turn's limit."""
    waited = max(0.0, (event.at - step.state.since).total_seconds())
    step.change_turn(since=later(step.turn.since, waited))
