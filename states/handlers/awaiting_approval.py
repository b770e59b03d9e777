"""Out of `AwaitingApproval`: a person allowed the call or did not, or did neither in time."""

from __future__ import annotations

from ..context import Context
from ..events import DeadlineReached, ToolApproval
from ..states import AwaitingApproval
from ..step_builder import StepBuilder
from ..values.messages import Made
from .awaiting_person import give_up_waiting, hear


def take_approval(step: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> None:
    """An allowed call may start, with the arguments that the person gave, if any; a denied one has its result."""
    call = step.state.call
    if event.allowed:
        step.set_round(step.open_round.allow(call))
    else:
        denied = context.policy.texts.denied
        step.settle(call.call_id, Made(text=f"{denied}: {event.note}" if event.note else denied), error=True)
    hear(step, event.at)


def deny_in_time(step: StepBuilder[AwaitingApproval], event: DeadlineReached, context: Context) -> None:
    """What nobody allowed does not run."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.denied_in_time), error=True)
    give_up_waiting(step, event)
