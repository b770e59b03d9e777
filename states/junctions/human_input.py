"""What it means for the limits of a turn that a person acts in it, or is waited for."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..state import State
from ..step_builder import StepBuilder
from ..values.value import later


def take_human_input(
    step: StepBuilder[State], at: datetime, context: Context, waited_since: datetime | None = None
) -> None:
    """Count the limits of the turn anew, because a person acted.

    Those of a sub-agent are its share of its parent's, so they go on; only the time since `waited_since`, in which it
    waited for the person, does not count.
    """
    if not context.has_one_task:
        step.reset_limits(at)
    elif waited_since is not None:
        leave_out_wait(step, waited_since, at)


def leave_out_wait(step: StepBuilder[State], since: datetime, at: datetime) -> None:
    """Do not count the time from `since` to `at`, in which a person was waited for, against the turn's limit."""
    waited = max(0.0, (at - since).total_seconds())
    step.change_turn(since=later(step.turn.since, waited))
