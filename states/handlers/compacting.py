"""Rows out of `Compacting`: the history is compacted, or could not be."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, HistoryCompacted
from ..junctions.asking import compact_effect
from ..states import Compacting
from ..step_builder import StepBuilder


def go_on(step: StepBuilder[Compacting], event: HistoryCompacted, context: Context) -> None:
    """The window has room again. Results that were compacted cannot be reused, so the calls that brought them may be
    made again."""
    step.window_used = 0
    if step.in_turn:
        step.spend(event.usage)
        step.change_turn(condensed=True, earlier_calls=())


def try_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> Compacting:
    """The failure is transient, so the compaction is tried again."""
    state, effect_id = step.state, step.next_id()
    step.add_effect(compact_effect(effect_id, state.up_to, state.turn))
    return step.same(effect_id=effect_id, attempt=state.attempt + 1, resumes=0)


def give_up(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> None:
    """The request does not fit and cannot be made to fit."""
    step.fail(event.kind, event.sentence)


def stop(step: StepBuilder[Compacting], event: Event, context: Context) -> None:
    """The compaction is stopped, and the history stays as it is."""
    step.add_effect(Abort(effect_id=step.state.effect_id))


def close(step: StepBuilder[Compacting], event: CloseRequested, context: Context) -> None:
    """The compaction is stopped, and the conversation ends."""
    stop(step, event, context)
    step.closing = True
