"""Out of `Summarizing`: the turn was over before; now it is left, with a summary or without."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, TurnSummarized
from ..states import Summarizing
from ..step_builder import StepBuilder
from .ending import leave_turn


def take_summary(draft: StepBuilder[Summarizing], event: TurnSummarized | EffectFailed, context: Context) -> None:
    """The summary, if it says something, is what is shown of the turn; what was said to the user, and what a sub-agent
    answers, stays what it was (case S12)."""
    draft.ending = draft.state.ending
    if isinstance(event, TurnSummarized):
        draft.spend(event.usage)
    leave_turn(draft, context)
    if isinstance(event, TurnSummarized) and event.summary.strip():
        draft.show(draft.heard())


def stop(draft: StepBuilder[Summarizing], event: Event, context: Context) -> None:
    """Only the summary is stopped: the turn had come to its end."""
    draft.act(Abort(effect_id=draft.state.effect_id))
    draft.ending = draft.state.ending
    leave_turn(draft, context)


def close(draft: StepBuilder[Summarizing], event: CloseRequested, context: Context) -> None:
    """The turn had come to its end, and so does the conversation."""
    stop(draft, event, context)
    draft.closing = True
