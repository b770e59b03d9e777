"""Out of `Cancelling`: what was running acknowledges that it stopped, or time is up.

A tool that had truly finished keeps its result (case P7); those are taken as in `tool_executing`.
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


def drop_question(draft: StepBuilder[Cancelling], event: AskUserQuestionPending, context: Context) -> None:
    """A question that comes after the cancel is not asked."""
    call = draft.open_round.call(event.effect_id)
    draft.settle(call.call_id, Made(text=context.policy.texts.cancelled), error=True)


def take_interruption(draft: StepBuilder[Cancelling], event: ToolInterrupted, context: Context) -> None:
    """The process died before the tool had stopped; if it must not run twice, nobody knows whether it ran."""
    texts = context.policy.texts
    must_be_known = draft.open_round.named(event.call_id).crash in ("at_most_once", "reconcile")
    draft.settle(event.call_id, Made(text=texts.in_doubt if must_be_known else texts.cancelled), error=True)


def take_verdict(draft: StepBuilder[Cancelling], event: ToolReconciled, context: Context) -> None:
    """A call that ran keeps its result; one that did not never will now; of the others nobody knows."""
    texts, call = context.policy.texts, draft.open_round.call(event.effect_id)
    if event.verdict == "ran":
        tool_executing.take_result(draft, event, context)
    else:
        text = texts.did_not_run if event.verdict == "did_not_run" else texts.in_doubt
        draft.settle(call.call_id, Made(text=text), error=True)


def take_outcome(draft: StepBuilder[Cancelling], event: SubAgentFinished, context: Context) -> None:
    """A sub-agent has stopped, or had finished."""
    awaiting_sub_agents.take_outcome(draft, event)


def take_failure(draft: StepBuilder[Cancelling], event: EffectFailed, context: Context) -> None:
    """A tool or a sub-agent broke while it was to stop; one that was only asked about its call leaves that unknown."""
    if any(child.effect_id == event.effect_id for child in draft.open_round.unfinished):
        awaiting_sub_agents.take_outcome(draft, event)
    elif (running := draft.open_round.started(event.effect_id)).reconciling is not None:
        draft.settle(running.call_id, Made(text=context.policy.texts.in_doubt), error=True)
    else:
        tool_executing.take_failure(draft, event, context)


def close_when_stopped(draft: StepBuilder[Cancelling], event: CloseRequested, context: Context) -> Cancelling:
    """The conversation ends once everything has stopped."""
    return draft.same(closing=True)
