"""Row out of `InDoubt`: a person says what became of a call that a crash interrupted."""

from __future__ import annotations

from ..context import Context
from ..events import DoubtResolved
from ..junctions.human_input import take_human_input
from ..states import InDoubt
from ..step_builder import StepBuilder
from ..values.messages import Made


def resolve(step: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> None:
    """The call has its result, or runs again because the person said so."""
    texts = context.policy.texts
    if event.verdict == "ran":
        step.settle(event.call_id, Made(text=texts.did_run))
    elif event.verdict == "did_not_run":
        step.settle(event.call_id, Made(text=texts.did_not_run), error=True)
    else:
        step.round = step.round.clear_doubt(event.call_id)
    take_human_input(step, event.at, context)
