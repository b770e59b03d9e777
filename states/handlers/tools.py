"""What a tool's outcome does to its round: a result, a question, acts to carry out, or a crash in the middle of a call.

Rows out of `ToolExecuting` and `InDoubt`: a tool ended, asks a person, or was interrupted by a crash; in `InDoubt` a
person says what became of such a call. A tool's result may carry acts, which are carried out only if the tool may do
all of that.

Rows for `Resumed`: a process takes the conversation over, and what was in flight is asked for again, under the ids that
it had, so an answer that is already on its way is still accepted. Tools are left out: whether a call may run again is
decided when its interruption is reported. What the report does not name is left out, too: it has been begun since.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ..context import Context
from ..effects import (
    TOOL_RUNS,
    CancelSubAgent,
    Effect,
    ExecuteTool,
    ReconcileTool,
    Reply,
    ResumeTool,
    SendToAgent,
    SpawnSubAgent,
    StartTimer,
)
from ..events import (
    AskUserQuestionPending,
    CallRestricted,
    DoubtResolved,
    EffectFailed,
    Resumed,
    ToolAborted,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
)
from ..guards import counts_as_resume, left_in_flight, may_act, may_ask_user, spawn_fault
from ..junctions import abort_all, again, asked_again, close_round, take_human_input
from ..replies import text_of_reply
from ..states import (
    AwaitingPerson,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    InDoubt,
    InFlight,
    InRound,
    Interruptible,
    RetryWaiting,
    ToolExecuting,
    restricted,
)
from ..step_builder import StepBuilder
from ..values.acts import Act, AgentMail, Speech, SubAgents, Transfer, WorkComplete, with_indexes
from ..values.messages import Heard, Made, ToolResult
from ..values.round import RoundCall
from ..values.turn import Spoken
from ..values.value import later

_WithRound: TypeAlias = InRound | AwaitingPerson | AwaitingSubAgents
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
    step.resumes = step.state.resumes
    _start_again(step, step.round.call(event.effect_id))


def restrict(step: StepBuilder[_WithRound], event: CallRestricted, context: Context) -> _WithRound:
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


def resolve(step: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> None:
    """The call has its result, or runs again because the person said so."""
    texts = context.policy.texts
    if event.verdict == "ran":
        step.settle(event.call_id, Made(text=texts.did_run))
    elif event.verdict == "did_not_run":
        step.settle(event.call_id, Made(text=texts.did_not_run), error=True)
    else:
        step.round = step.round.clear_doubt(event.call_id)
    take_human_input(step, event.at, context)


def take_up_run(step: StepBuilder[Busy], event: Resumed, context: Context) -> Busy:
    """The effects in flight are asked for again. A wait for a person does not count as a resume: only its timer is
    started again."""
    state, right = step.state, _moments_set_right(step.state, event.at, context)
    for effect in _effects_again(state.replace(**right), left_in_flight(state, event, context), event.at, context):
        step.add_effect(effect)
    return step.same(resumes=state.resumes + counts_as_resume(state, event, context), **right)


def give_up(step: StepBuilder[Busy], event: Resumed, context: Context) -> None:
    """Too many processes have died in this turn, or it was under way elsewhere, so a person has to look at it."""
    texts = context.policy.texts
    abort_all(step)
    close_round(step, context, running=texts.in_doubt, unrun=texts.did_not_run if event.imported else texts.interrupted)
    step.fail("interrupted", texts.imported if event.imported else texts.died_too_often)


def _effects_again(state: Busy, in_flight: InFlight, at: datetime, context: Context) -> Sequence[Effect]:
    """These effects in flight, to be started again, timers last; tools are left out. `Pure.`

    Sub-agents that were told to stop are told again, since nothing confirms that they were told.
    """
    started: list[Effect] = [
        again(state, effect_id, kind, at, context) for effect_id, kind in in_flight.items() if kind not in TOOL_RUNS
    ]
    if isinstance(state, Cancelling):
        started += [CancelSubAgent(effect_id=each) for each, kind in in_flight.items() if kind is SpawnSubAgent]
    return sorted(started, key=lambda effect: type(effect) is StartTimer)


def _moments_set_right(state: Busy, at: datetime, context: Context) -> dict[str, Any]:
    """The fields that change because a clock that ran ahead has set a moment which this state waits for: it comes no
    later than agreed, counted from now. `Pure.`"""
    fields = vars(state)
    wait = state.agreed_wait(context.policy)
    right: dict[str, Any] = {
        name: timer.set_right(at, wait) for name in ("timer", "deadline") if (timer := fields.get(name)) is not None
    }
    if (turn := fields.get("turn")) is not None and at < turn.since:
        right["turn"] = turn.replace(since=at)
    if (round_ := fields.get("round")) is not None and round_.children:
        right["round"] = round_.replace(children=tuple(child.set_right(at) for child in round_.children))
    return right


@asked_again(StartTimer)
def _start_timer_again(state: Any, effect_id: int, at: datetime, context: Context) -> StartTimer:
    """The timer that the state waits for. `Pure.`"""
    if isinstance(state, RetryWaiting):
        return StartTimer(effect_id=effect_id, due=state.timer.due, wakes="retry_due")
    return StartTimer(effect_id=effect_id, due=state.deadline.due, wakes="deadline_reached")


def fault_of(
    step: StepBuilder[InRound], call: RoundCall, event: ToolComplete | ToolReconciled, context: Context
) -> str | None:
    """The reason why none of the acts of the call's result is carried out, or None if they are.

    An error result carries no acts: the model only reads it. Sub-agents are spawned by a row of their own, so they are
    a fault here. `Pure.`
    """
    result = event.result
    if result is None or result.error or not (acts := result.acts):
        return None
    faults = (_fault_of_act(step, call, act, event.at, context) for act in acts)
    return next((fault for fault in faults if fault is not None), None)


def _fault_of_act(step: StepBuilder[InRound], call: RoundCall, act: Act, at: datetime, context: Context) -> str | None:
    policy, texts, fault = context.policy, context.policy.texts, None
    if act.type not in call.acts:
        fault = texts.act_not_declared
    elif not may_act(act, context):
        fault = texts.act_not_for_role
    elif isinstance(act, SubAgents) and isinstance(step.state, Cancelling):
        fault = texts.cancelled
    elif isinstance(act, SubAgents):
        fault = spawn_fault(act, step.turn, at, context) or texts.act_not_exclusive
    elif _must_be_alone(act) and not call.exclusive:
        fault = texts.act_not_exclusive
    elif isinstance(act, Transfer) and not policy.has_profile(act.profile):
        fault = texts.unknown_profile
    else:
        fault = _fault_of_text(act, context)
    return fault


def _fault_of_text(act: Act, context: Context) -> str | None:
    """What is missing in an act that says nothing to people. A claim's summary is the reply of a turn without any other
    text."""
    policy, text = context.policy, None
    if isinstance(act, Speech) and policy.speech.empty == "error":
        text = act.text
    elif isinstance(act, WorkComplete):
        text = act.summary
    return None if text is None or text_of_reply(text, policy).strip() else policy.texts.nothing_said


def _must_be_alone(act: Act) -> bool:
    """Whether the tool of this act must run alone, so that the order of acts does not depend on which tool is
    faster."""
    return isinstance(act, Transfer) or (isinstance(act, Speech) and act.when == "now")


def carry_out(step: StepBuilder[InRound], call: RoundCall, result: ToolResult) -> None:
    """Carry out the acts of a result: record speech, deliver speech for now, send mail, note a claim, change the
    profile."""
    acts = () if result.error else result.acts
    if not acts:
        return
    for act, index in with_indexes(acts):
        said = step.heard(index)
        if isinstance(act, Speech):
            place = (call.seq, step.round.place(call.call_id), index)
            spoken = Spoken(said=said, place=place, now=act.when == "now")
            step.change_turn(said=tuple(sorted((*step.turn.said, spoken), key=lambda one: one.place)))
            if spoken.now:
                step.deliver(said)
        elif isinstance(act, WorkComplete):
            step.round = step.round.with_claim(said)
        elif isinstance(act, AgentMail):
            post(step, act, index)
        elif isinstance(act, Transfer):
            step.profile = act.profile


def post(step: StepBuilder[InRound], mail: AgentMail, index: int) -> None:
    """Send a message to another agent."""
    step.add_effect(
        SendToAgent(
            effect_id=step.next_id(),
            target=mail.target,
            said=step.heard(index),
            audience=mail.audience,
            silent=mail.silent,
        )
    )
