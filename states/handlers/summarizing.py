"""Rows out of `Summarizing`: the turn had already ended and is now left, with a summary or without."""

from __future__ import annotations

from ..context import Context
from ..effects import Abort
from ..events import CloseRequested, EffectFailed, Event, TurnSummarized
from ..junctions.ending import leave_turn
from ..states import Summarizing
from ..step_builder import StepBuilder


def take_summary(step: StepBuilder[Summarizing], event: TurnSummarized | EffectFailed, context: Context) -> None:
    """The summary, if it holds text, is displayed for the turn. It changes neither what was said to the user nor what a
    sub-agent answers."""
    step.ending = step.state.ending
    if isinstance(event, TurnSummarized):
        step.spend(event.usage)
    leave_turn(step, context)
    if isinstance(event, TurnSummarized) and event.summary.strip():
        step.show_summary(step.heard())


def stop(step: StepBuilder[Summarizing], event: Event, context: Context) -> None:
    """Only the summary is stopped, since the turn had already ended."""
    step.add_effect(Abort(effect_id=step.state.effect_id))
    step.ending = step.state.ending
    leave_turn(step, context)


def close(step: StepBuilder[Summarizing], event: CloseRequested, context: Context) -> None:
    """The summary is stopped, and the conversation ends."""
    stop(step, event, context)
    step.closing = True
