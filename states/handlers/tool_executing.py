"""Rows out of `ToolExecuting` and `InDoubt`: a tool ended, asks a person, or was interrupted by a crash."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from ..context import Context
from ..effects import ExecuteTool, ReconcileTool, Reply, ResumeTool
from ..events import (
    AskUserQuestionPending,
    CallRestricted,
    EffectFailed,
    ToolAborted,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
)
from ..guards.roles import may_ask_user
from ..junctions.again import asked_again
from ..state import AwaitingPerson, InRound, restricted
from ..states import AwaitingSubAgents, AwaitingUserResponse, Interruptible, ToolExecuting
from ..step_builder import StepBuilder
from ..values.messages import Heard, Made
from ..values.revision import COUNTS_RUNS_AGAIN
from ..values.round import RoundCall
from ..values.value import later
from .acts import carry_out, fault_of

WithRound: TypeAlias = InRound | AwaitingPerson | AwaitingSubAgents
"""The states that carry a round."""


def take_result(step: StepBuilder[InRound], event: ToolComplete | ToolReconciled, context: Context) -> None:
    """The call has its result, and the acts of the result are carried out if the tool may do so."""
    call = step.round.call(event.effect_id)
    result = event.result
    if result is None:
        step.settle(call.call_id, Made(text=context.policy.texts.did_run))
    elif (fault := fault_of(step, call, event, context)) is not None:
        step.settle(call.call_id, Made(text=fault), error=True)
    else:
        step.settle(call.call_id, step.heard(), error=result.error)
        carry_out(step, call, result)


def take_failure(step: StepBuilder[InRound], event: EffectFailed, context: Context) -> None:
    """The tool could not be run; the reason is the result of its call."""
    step.settle(step.round.call(event.effect_id).call_id, step.heard(), error=True)


def take_abort(step: StepBuilder[InRound], event: ToolAborted, context: Context) -> None:
    """The tool was stopped. If it was only asked what had become of its call, that stays unknown."""
    running, texts = step.round.started(event.effect_id), context.policy.texts
    text = texts.cancelled if running.reconciling is None else texts.in_doubt
    step.settle(running.call_id, Made(text=text), error=True)


def refuse_question(step: StepBuilder[InRound], event: AskUserQuestionPending, context: Context) -> None:
    """The tool may not ask: there is no user, or other tools run. The model is told so. A call that waits for an answer
    goes on without one."""
    call = step.round.call(event.effect_id)
    if event.suspends:
        suspend(step, call)
        resume(step, call, "declined")
    else:
        texts = context.policy.texts
        text = texts.question_not_exclusive if may_ask_user(context) else texts.question_not_for_role
        step.settle(call.call_id, Made(text=text), error=True)


def ask(step: StepBuilder[ToolExecuting], event: AskUserQuestionPending, context: Context) -> AwaitingUserResponse:
    """The conversation rests until a person answers; the calls behind the question keep their places in the round."""
    call = step.round.call(event.effect_id)
    if event.suspends:
        suspend(step, call)
    else:
        step.round = step.round.settle(call.call_id)
    seconds = context.policy.questions.deadline
    deadline = None if seconds is None else step.start_timer(later(event.at, seconds), "deadline_reached")
    return step.within_turn(
        AwaitingUserResponse,
        questions=event.questions,
        call=call,
        round=step.round,
        since=event.at,
        deadline=deadline,
    )


def suspend(step: StepBuilder[InRound], call: RoundCall) -> None:
    """The call has asked a person, and waits."""
    step.round = step.round.suspend(call.call_id)


def resume(step: StepBuilder[Interruptible], call: RoundCall, reply: Reply, said: Heard | None = None) -> None:
    """The call that has asked a person goes on with this reply."""
    effect_id, started_as = step.next_id(), step.round.running_call(call.call_id).first_id
    step.add_effect(ResumeTool(effect_id=effect_id, call=call, started_as=started_as, reply=reply, said=said))
    step.round = step.round.resume(call.call_id, effect_id)


# --- after a crash


def doubt_interrupted(step: StepBuilder[Interruptible], event: ToolInterrupted, context: Context) -> None:
    """The call must not run twice, and it is unknown whether it ran: a person has to decide."""
    step.round = step.round.mark_doubtful(event.call_id)


def doubt(step: StepBuilder[InRound], event: ToolReconciled | EffectFailed, context: Context) -> None:
    """The tool does not know whether its call ran: a person has to decide."""
    step.round = step.round.mark_doubtful(step.round.call(event.effect_id).call_id)


def take_up(step: StepBuilder[Interruptible], event: ToolInterrupted, context: Context) -> None:
    """The call runs again, or its tool is asked first whether the call ran."""
    call = step.round.named(event.call_id)
    if call.crash != "reconcile":
        return _start_again(step, call)
    effect_id, started_as = step.next_id(), step.round.running_call(call.call_id).first_id
    step.add_effect(ReconcileTool(effect_id=effect_id, call=call, started_as=started_as))
    step.round = step.round.ask_about(call.call_id, effect_id)


def run_again(step: StepBuilder[InRound], event: ToolReconciled, context: Context) -> None:
    """The tool says that its call did not run, so it runs now. That is no progress: if the process dies in it each
    time, the turn fails after a few."""
    if context.revision >= COUNTS_RUNS_AGAIN:
        step.resumes = step.state.resumes
    _start_again(step, step.round.call(event.effect_id))


def restrict(step: StepBuilder[WithRound], event: CallRestricted, context: Context) -> WithRound:
    """The stricter declarations hold from now on."""
    state, round_ = step.state, restricted(step.round, event)
    assert round_ is not None, "a report that changes nothing concerns no state"
    if isinstance(state, AwaitingPerson | AwaitingSubAgents):
        return step.same(round=round_, call=round_.named(state.call.call_id))
    return step.same(round=round_)


def _start_again(step: StepBuilder[Interruptible], call: RoundCall) -> None:
    """Run the call again, unless a person must approve it now and nobody did: then it waits for that."""
    if step.round.needs_approval(call):
        step.round = step.round.put_back(call.call_id)
    else:
        _execute_again(step, call.call_id)


def _execute_again(step: StepBuilder[Interruptible], call_id: str) -> None:
    """Run the call under the id that it had, or, if that effect is answered because the call has asked a person, under
    a new one."""
    before = step.round.running_call(call_id)
    step.round = step.round.restart(call_id, step.next_id() if before.asked else before.effect_id)
    again, call = step.round.running_call(call_id), step.round.named(call_id)
    step.add_effect(ExecuteTool(effect_id=again.effect_id, call=call, started_as=again.started_as))


@asked_again(ReconcileTool)
def _ask_about_again(state: InRound, effect_id: int, at: datetime, context: Context) -> ReconcileTool:
    """The question that a tool was asked about its call. `Pure.`"""
    running = state.round.started(effect_id)
    call = state.round.named(running.call_id)
    return ReconcileTool(effect_id=effect_id, call=call, started_as=running.first_id)
