"""Out of `Compacting`: the history is condensed, or could not be."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, HistoryCompacted
from ..states import Compacting
from ..step_builder import StepBuilder
from .asking import compact_effect


def go_on(draft: StepBuilder[Compacting], event: HistoryCompacted, context: Context) -> None:
    """The window is free again; the transcript knows what stands for what from here on. Results that were condensed
    cannot be reused, so the calls that brought them may be made again."""
    draft.window_used = 0
    if draft.in_turn:
        draft.spend(event.usage)
        draft.change_turn(condensed=True, earlier_calls=())


def try_again(draft: StepBuilder[Compacting], event: EffectFailed, context: Context) -> Compacting:
    """The failure passes by itself."""
    state, effect_id = draft.state, draft.next_id()
    draft.act(compact_effect(effect_id, state.up_to, state.turn))
    return draft.same(effect_id=effect_id, attempt=state.attempt + 1, resumes=0)


def give_up(draft: StepBuilder[Compacting], event: EffectFailed, context: Context) -> None:
    """The request does not fit, and cannot be made to (case P21)."""
    draft.fail(event.kind, event.sentence)


def stop(draft: StepBuilder[Compacting], event: Event, context: Context) -> None:
    """The history stays as it is."""
    draft.act(Abort(effect_id=draft.state.effect_id))


def close(draft: StepBuilder[Compacting], event: CloseRequested, context: Context) -> None:
    """The history stays as it is, and the conversation ends."""
    stop(draft, event, context)
    draft.closing = True
