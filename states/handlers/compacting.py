"""Out of `Compacting`: the history is condensed, or could not be."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, HistoryCompacted
from ..junctions.asking import compact_effect
from ..states import Compacting
from ..step_builder import StepBuilder


def go_on(step: StepBuilder[Compacting], event: HistoryCompacted, context: Context) -> None:
    """The window is free again; the transcript knows what stands for what from here on. Results that were condensed
    cannot be reused, so the calls that brought them may be made again."""
    step.window_used = 0
    if step.in_turn:
        step.spend(event.usage)
        step.change_turn(condensed=True, earlier_calls=())


def try_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> Compacting:
    """The failure passes by itself."""
    state, effect_id = step.state, step.next_id()
    step.act(compact_effect(effect_id, state.up_to, state.turn))
    return step.same(effect_id=effect_id, attempt=state.attempt + 1, resumes=0)


def give_up(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> None:
    """The request does not fit, and cannot be made to."""
    step.fail(event.kind, event.sentence)


def stop(step: StepBuilder[Compacting], event: Event, context: Context) -> None:
    """The history stays as it is."""
    step.act(Abort(effect_id=step.state.effect_id))


def close(step: StepBuilder[Compacting], event: CloseRequested, context: Context) -> None:
    """The history stays as it is, and the conversation ends."""
    stop(step, event, context)
    step.closing = True
