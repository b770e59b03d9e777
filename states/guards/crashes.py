"""Guards about calls that a crash interrupted."""

from __future__ import annotations

from ..context import Context
from ..events import DoubtResolved, EffectFailed, Event, Resumed, ToolInterrupted, ToolReconciled
from ..state import InRound, State
from ..states import InDoubt, Interruptible
from ..step_builder import StepBuilder


def may_not_run_twice(step: StepBuilder[Interruptible], event: ToolInterrupted, context: Context) -> bool:
    """Only a person may have the call run again."""
    return step.round.must_not_run_twice(step.round.named(event.call_id))


def is_imported(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The log comes from elsewhere, so nothing of it goes on by itself."""
    return isinstance(event, Resumed) and event.imported


def did_not_run(step: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool knows that the call did not run. It is not believed of a call that must not run twice."""
    return event.verdict == "did_not_run" and not step.round.must_not_run_twice(step.round.call(event.effect_id))


def is_unknown(step: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool does not know whether the call ran, or is not believed."""
    return event.verdict != "ran"


def is_asking_about(step: StepBuilder[InRound], event: EffectFailed, context: Context) -> bool:
    """What failed was the question whether the call ran."""
    return step.round.started(event.effect_id).reconciling == event.effect_id


def names_a_doubt(step: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> bool:
    """The request names a call that is in doubt."""
    return event.call_id in step.round.doubtful
