"""Out of `Summarizing`: the turn was over before; now it is left, with a summary or without."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, TurnSummarized
from ..junctions.ending import leave_turn
from ..states import Summarizing
from ..step_builder import StepBuilder


def take_summary(step: StepBuilder[Summarizing], event: TurnSummarized | EffectFailed, context: Context) -> None:
    """The summary, if it says something, is what is shown of the turn; what was said to the user, and what a sub-agent
    answers, stays what it was."""
    step.ending = step.state.ending
    if isinstance(event, TurnSummarized):
        step.spend(event.usage)
    leave_turn(step, context)
    if isinstance(event, TurnSummarized) and event.summary.strip():
        step.show(step.heard())


def stop(step: StepBuilder[Summarizing], event: Event, context: Context) -> None:
    """Only the summary is stopped: the turn had come to its end."""
    step.act(Abort(effect_id=step.state.effect_id))
    step.ending = step.state.ending
    leave_turn(step, context)


def close(step: StepBuilder[Summarizing], event: CloseRequested, context: Context) -> None:
    """The turn had come to its end, and so does the conversation."""
    stop(step, event, context)
    step.closing = True
