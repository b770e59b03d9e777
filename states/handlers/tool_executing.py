"""Out of `ToolExecuting` and `InDoubt`: a tool ended, wants to ask a person, or was hit by a crash."""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import ExecuteTool, ReconcileTool, SpawnSubAgent
from ..events import (
    AskUserQuestionPending,
    EffectFailed,
    ToolAborted,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
)
from ..states import AwaitingSubAgents, AwaitingUserResponse, Cancelling, InRound, ToolExecuting
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.round import Child
from ..values.value import later
from .acts import carry_out, fault_of
from .again import asked_again


def take_result(draft: StepBuilder[InRound], event: ToolComplete | ToolReconciled, context: Context) -> None:
    """The call has its result, and what else the tool did is carried out, unless it may not do that."""
    call = draft.open_round.call(event.effect_id)
    result = event.result
    if result is None:
        draft.settle(call.call_id, Made(text=context.policy.texts.did_run))
    elif (fault := fault_of(call, result, context.policy, cancelled=isinstance(draft.state, Cancelling))) is not None:
        draft.settle(call.call_id, Made(text=fault), error=True)
    else:
        draft.settle(call.call_id, draft.heard(), error=result.error)
        carry_out(draft, call, result)


def take_failure(draft: StepBuilder[InRound], event: EffectFailed, context: Context) -> None:
    """The tool could not be run; why is its result."""
    draft.settle(draft.open_round.call(event.effect_id).call_id, draft.heard(), error=True)


def take_abort(draft: StepBuilder[InRound], event: ToolAborted, context: Context) -> None:
    """The tool was stopped; if it was only asked what had become of the call, that stays unknown."""
    running, texts = draft.open_round.started(event.effect_id), context.policy.texts
    text = texts.cancelled if running.reconciling is None else texts.in_doubt
    draft.settle(running.call_id, Made(text=text), error=True)


def refuse_question(draft: StepBuilder[InRound], event: AskUserQuestionPending, context: Context) -> None:
    """A question beside other tools cannot pause the machine; the model is told so."""
    call = draft.open_round.call(event.effect_id)
    draft.settle(call.call_id, Made(text=context.policy.texts.question_not_exclusive), error=True)


def ask(draft: StepBuilder[ToolExecuting], event: AskUserQuestionPending, context: Context) -> AwaitingUserResponse:
    """Rest until a person answers; the calls behind the question keep their place in the round."""
    call = draft.open_round.call(event.effect_id)
    seconds = context.policy.questions.deadline
    deadline = None if seconds is None else draft.arm(later(event.at, seconds), "deadline_reached")
    return draft.within_turn(
        AwaitingUserResponse,
        questions=event.questions,
        call=call,
        round=draft.open_round.settle(call.call_id),
        since=event.at,
        deadline=deadline,
    )


def spawn(draft: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> AwaitingSubAgents:
    """Start the sub-agents, one for each task, and rest until they have finished; that is the call's result."""
    call = draft.open_round.call(event.effect_id)
    children = []
    for index in range(1, len(event.result.texts)):
        task, effect_id = draft.heard(index), draft.next_id()
        draft.act(SpawnSubAgent(effect_id=effect_id, task=task))
        children.append(Child(effect_id=effect_id, call_id=call.call_id, task=task))
    draft.set_round(draft.open_round.spawn(call.call_id, tuple(children)))
    seconds = context.policy.sub_agent_deadline
    deadline = None if seconds is None else draft.arm(later(event.at, seconds), "deadline_reached")
    return draft.within_turn(AwaitingSubAgents, call=call, round=draft.open_round, deadline=deadline)


# --- after a crash


def doubt_interrupted(draft: StepBuilder[InRound], event: ToolInterrupted, context: Context) -> None:
    """The call must not run twice, and nobody knows whether it ran: a person has to say."""
    draft.set_round(draft.open_round.doubt(event.call_id))


def doubt(draft: StepBuilder[InRound], event: ToolReconciled | EffectFailed, context: Context) -> None:
    """The tool does not know either whether the call ran: a person has to say."""
    draft.set_round(draft.open_round.doubt(draft.open_round.call(event.effect_id).call_id))


def take_up(draft: StepBuilder[InRound], event: ToolInterrupted, context: Context) -> None:
    """The call runs again under the key that it had, or its tool is asked first whether it did run."""
    call = draft.open_round.named(event.call_id)
    if call.crash != "reconcile":
        return _execute_again(draft, call.call_id)
    effect_id = draft.next_id()
    started_as = next(one.effect_id for one in draft.open_round.running if one.call_id == call.call_id)
    draft.act(ReconcileTool(effect_id=effect_id, call=call, started_as=started_as))
    draft.set_round(draft.open_round.ask_about(call.call_id, effect_id))


def run_again(draft: StepBuilder[InRound], event: ToolReconciled, context: Context) -> None:
    """The call did not run, says its tool: now it does."""
    _execute_again(draft, draft.open_round.call(event.effect_id).call_id)


def _execute_again(draft: StepBuilder[InRound], call_id: str) -> None:
    draft.set_round(draft.open_round.ask_about(call_id, None))
    started_as = next(one.effect_id for one in draft.open_round.running if one.call_id == call_id)
    draft.act(ExecuteTool(effect_id=started_as, call=draft.open_round.named(call_id)))


@asked_again(ReconcileTool)
def _ask_about_again(state: InRound, effect_id: int, at: datetime, context: Context) -> ReconcileTool:
    """The question that a tool was asked about its call. `Pure.`"""
    running = state.round.started(effect_id)
    call = state.round.named(running.call_id)
    return ReconcileTool(effect_id=effect_id, call=call, started_as=running.effect_id)
