"""Rows out of `Cancelling`: whatever was running confirms that it stopped, or the deadline passes.

A tool that had already finished keeps its result, which is taken as in `tool_executing`.
"""

from __future__ import annotations

from ..context import Context
from ..events import (
    AskUserQuestionPending,
    CloseRequested,
    EffectFailed,
    SubAgentFinished,
    ToolInterrupted,
    ToolReconciled,
)
from ..states import Cancelling
from ..step_builder import StepBuilder
from ..values.messages import Made
from . import awaiting_sub_agents, tool_executing


def drop_question(step: StepBuilder[Cancelling], event: AskUserQuestionPending, context: Context) -> None:
    """A question that arrives after the cancel is not asked. A call that waits for the answer is told to stop."""
    call = step.round.call(event.effect_id)
    if event.suspends:
        tool_executing.suspend(step, call)
        tool_executing.resume(step, call, "cancelled")
    else:
        step.settle(call.call_id, Made(text=context.policy.texts.cancelled), error=True)


def take_interruption(step: StepBuilder[Cancelling], event: ToolInterrupted, context: Context) -> None:
    """The process died before the tool had stopped. If the call must not run twice, it is unknown whether it ran."""
    texts = context.policy.texts
    must_be_known = step.round.named(event.call_id).crash in ("at_most_once", "reconcile")
    step.settle(event.call_id, Made(text=texts.in_doubt if must_be_known else texts.cancelled), error=True)


def take_verdict(step: StepBuilder[Cancelling], event: ToolReconciled, context: Context) -> None:
    """A call that ran keeps its result; a call that did not run never will; of any other it stays unknown."""
    texts, call = context.policy.texts, step.round.call(event.effect_id)
    if event.verdict == "ran":
        tool_executing.take_result(step, event, context)
    else:
        text = texts.did_not_run if event.verdict == "did_not_run" else texts.in_doubt
        step.settle(call.call_id, Made(text=text), error=True)


def take_outcome(step: StepBuilder[Cancelling], event: SubAgentFinished, context: Context) -> None:
    """A sub-agent has stopped, or had already finished."""
    awaiting_sub_agents.take_outcome(step, event)


def take_failure(step: StepBuilder[Cancelling], event: EffectFailed, context: Context) -> None:
    """A tool or a sub-agent failed while it was to stop. If its tool was only asked about the call, it stays unknown
    whether the call ran."""
    if any(child.effect_id == event.effect_id for child in step.round.unfinished):
        awaiting_sub_agents.take_outcome(step, event)
    elif (running := step.round.started(event.effect_id)).reconciling is not None:
        step.settle(running.call_id, Made(text=context.policy.texts.in_doubt), error=True)
    else:
        tool_executing.take_failure(step, event, context)


def close_when_stopped(step: StepBuilder[Cancelling], event: CloseRequested, context: Context) -> Cancelling:
    """The conversation ends once everything has stopped."""
    return step.same(closing=True)
