"""What every wait for a person has in common: how it ends when the person acts, and when the time is over."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..effects import Abort
from ..events import DeadlineReached
from ..states import AwaitingPerson
from ..step_builder import StepBuilder
from ..values.value import later

P = TypeVar("P", bound=AwaitingPerson)


def hear(draft: StepBuilder[P], at: datetime) -> None:
    """A person acted: the limits of the turn are counted anew (case P34), and the deadline is no longer needed."""
    draft.count_anew(at)
    if draft.state.deadline is not None:
        draft.act(Abort(effect_id=draft.state.deadline.effect_id))


def give_up_waiting(draft: StepBuilder[P], event: DeadlineReached) -> None:
    """Nobody acted in time. The wait does not count against the turn's time."""
    waited = max(0.0, (event.at - draft.state.since).total_seconds())
    draft.change_turn(since=later(draft.turn.since, waited))
