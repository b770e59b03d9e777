"""Rows out of `AwaitingApproval`: a person allows or denies the call, or does neither in time."""

from __future__ import annotations

from ..context import Context
from ..events import DeadlineReached, ToolApproval
from ..states import AwaitingApproval
from ..step_builder import StepBuilder
from ..values.messages import Made
from .awaiting_person import end_wait, end_wait_at_deadline


def take_approval(step: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> None:
    """A call that is allowed may start, with the person's arguments if there are any; a call that is denied has its
    result."""
    call = step.state.call
    if event.allowed:
        step.round = step.round.allow(call)
    else:
        denied = context.policy.texts.denied
        step.settle(call.call_id, Made(text=f"{denied}: {event.note}" if event.note else denied), error=True)
    end_wait(step, event.at, context)


def deny_in_time(step: StepBuilder[AwaitingApproval], event: DeadlineReached, context: Context) -> None:
    """The call was not allowed in time, so it does not run."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.denied_in_time), error=True)
    end_wait_at_deadline(step, event)
