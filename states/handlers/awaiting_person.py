"""What every wait for a person has in common: how it ends when the person acts, and when the time is over."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..effects import Abort
from ..events import DeadlineReached
from ..state import AwaitingPerson
from ..step_builder import StepBuilder
from ..values.value import later

P = TypeVar("P", bound=AwaitingPerson)


def hear(step: StepBuilder[P], at: datetime) -> None:
    """A person acted: the limits of the turn are counted anew, and the deadline is no longer needed."""
    step.count_anew(at)
    if step.state.deadline is not None:
        step.act(Abort(effect_id=step.state.deadline.effect_id))


def give_up_waiting(step: StepBuilder[P], event: DeadlineReached) -> None:
    """Nobody acted in time. The wait does not count against the turn's time."""
    waited = max(0.0, (event.at - step.state.since).total_seconds())
    step.change_turn(since=later(step.turn.since, waited))
