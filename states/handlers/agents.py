"""What a turn does with its sub-agents: they start, finish one by one, ask the user, and are stopped.

Each outcome is kept by reference until all sub-agents have finished. Together the outcomes are the result of the call
that started them, so each reaches the model exactly once. A sub-agent has no user of its own. What it asks is shown to
the user here, one question after the other, and the answer is passed on to it.

A turn that is cancelled rests in `Cancelling` until its tools and its sub-agents confirm that they stopped, or until
the deadline passes. A tool that had already finished keeps its result, which is taken as if the turn went on.
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import Abort, AnswerSubAgent, CancelSubAgent, SpawnSubAgent
from ..errors import Refused
from ..events import (
    AskUserQuestionPending,
    Branching,
    CloseRequested,
    DeadlineReached,
    EffectFailed,
    SubAgentAsked,
    SubAgentFinished,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..guards import shares_of
from ..junctions import asked_again, leave_out_wait, mark_branch, settle_children, take_human_input
from ..policy import Limits
from ..states import AwaitingSubAgents, Cancelling, InTurn, ToolExecuting
from ..step_builder import StepBuilder
from ..values.acts import SubAgents
from ..values.messages import Heard, Made, Usage
from ..values.round import Child, ChildQuestion, RoundCall
from ..values.value import later
from . import tools


def spawn(step: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> AwaitingSubAgents:
    """The sub-agents start, one for each task, and the conversation rests until they have finished; their outcomes are
    the result of the call."""
    call = step.round.call(event.effect_id)
    (act,) = event.result.acts
    assert isinstance(act, SubAgents), "the guard of this row has found that the tool starts sub-agents"
    children = _children(step, call, act, event.at, context)
    for child in children:
        step.add_effect(_spawn_effect(child))
    step.round = step.round.spawn(call.call_id, children)
    seconds = context.policy.sub_agent_deadline
    deadline = None if seconds is None else step.start_timer(later(event.at, seconds), "deadline_reached")
    return step.within_turn(AwaitingSubAgents, call=call, round=step.round, deadline=deadline)


def _children(
    step: StepBuilder[ToolExecuting], call: RoundCall, act: SubAgents, at: datetime, context: Context
) -> tuple[Child, ...]:
    """The sub-agents of this call."""
    children = tuple(
        Child(effect_id=step.next_id(), call_id=call.call_id, task=step.heard(index))
        for index in range(1, len(act.tasks) + 1)
    )
    shares = shares_of(act, step.turn, at, context.policy)
    assert shares is not None, "the guard of this row has found that something is left to share"
    step.change_turn(children=step.turn.children + len(children))
    return tuple(
        child.replace(
            profile=task.profile or step.turn.profile,
            tools=task.tools,
            share=share,
            due=None if task.seconds is None else later(at, task.seconds),
            seconds=task.seconds,
        )
        for child, task, share in zip(children, act.full_tasks, shares, strict=True)
    )


def _spawn_effect(child: Child) -> SpawnSubAgent:
    """The effect that starts this sub-agent. `Pure.`"""
    share = child.share
    limits = Limits() if share is None else Limits(**vars(share))
    return SpawnSubAgent(
        effect_id=child.effect_id,
        task=child.task,
        profile=child.profile,
        tools=child.tools,
        limits=limits,
        due=child.due,
        seconds=child.seconds,
    )


@asked_again(SpawnSubAgent)
def _spawn_again(
    state: AwaitingSubAgents | Cancelling, effect_id: int, at: datetime, context: Context
) -> SpawnSubAgent:
    """The sub-agent that was started as this effect. `Pure.`"""
    return _spawn_effect(next(child for child in state.round.children if child.effect_id == effect_id))


# --- outcomes


def _take_outcome(step: StepBuilder[InTurn], event: SubAgentFinished | EffectFailed) -> None:
    """Note the outcome of this sub-agent. A sub-agent that could not be started counts as failed."""
    status = event.status if isinstance(event, SubAgentFinished) else "failed"
    if isinstance(event, SubAgentFinished):
        step.spend(event.usage)
    is_json = isinstance(event, SubAgentFinished) and event.is_json
    step.round = step.round.finish(event.effect_id, status, step.heard(), is_json=is_json)


def keep_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> AwaitingSubAgents:
    """The outcome is noted; other sub-agents still work."""
    _take_outcome(step, event)
    return _with_questions(step, _questions_of_others(step, event.effect_id), event.at)


def take_last_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> None:
    """All sub-agents have finished, and the call has its result."""
    _take_outcome(step, event)
    settle_children(step, context, "")
    _end_wait_for_person(step, event.at)
    if step.state.deadline is not None:
        step.add_effect(Abort(effect_id=step.state.deadline.effect_id))


def go_on_without(step: StepBuilder[AwaitingSubAgents], event: DeadlineReached, context: Context) -> None:
    """The deadline has passed: the turn goes on with the outcomes so far, and the other sub-agents are stopped."""
    for child in step.round.unfinished:
        step.add_effect(CancelSubAgent(effect_id=child.effect_id))
        _count_whole_share(step, child)
    settle_children(step, context, context.policy.texts.child_late)
    _end_wait_for_person(step, event.at)


def _count_whole_share(step: StepBuilder[AwaitingSubAgents], child: Child) -> None:
    """Count the share of a sub-agent that is given up as spent, because nobody knows what it has used up."""
    if child.share is not None:
        share = Usage(input_tokens=child.share.tokens or 0, cost=child.share.cost)
        step.change_turn(spent=step.turn.spent + share)


# --- questions


def show_question(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> AwaitingSubAgents:
    """The user is asked, after the questions that wait already."""
    return _with_questions(step, (*_questions_of_others(step, event.effect_id), _question(step, event)), event.at)


def refuse_question(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> AwaitingSubAgents:
    """The user may not be asked, and the sub-agent goes on by its own judgment."""
    question = _question(step, event)
    _answer(step, question, None)
    settled = question.replace(settled=True)
    return _with_questions(step, (*_questions_of_others(step, event.effect_id), settled), event.at)


def drop_question(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> AwaitingSubAgents:
    """The sub-agent no longer asks: it has its answer, or does not wait for it."""
    return _with_questions(step, _questions_of_others(step, event.effect_id), event.at)


def pass_on_answers(
    step: StepBuilder[AwaitingSubAgents], event: UserQuestionResponse, context: Context
) -> AwaitingSubAgents:
    """The answers are passed on to the sub-agent that asked."""
    return _settle_question(step, event.at, context, step.heard())


def decline_question(step: StepBuilder[AwaitingSubAgents], event: UserCancel, context: Context) -> AwaitingSubAgents:
    """The person declines to answer, and the sub-agent goes on by its own judgment."""
    step.note_heard(event)
    return _settle_question(step, event.at, context, None)


def why_it_is_busy(step: StepBuilder[AwaitingSubAgents], event: UserMessage, context: Context) -> Refused:
    """The reason why a message is refused: a question is open, or the sub-agents work."""
    return Refused("busy" if step.state.open_question is None else "awaiting_user_response")


def _question(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked) -> ChildQuestion:
    assert event.questions is not None, "the rows in front of this one take other reports"
    return ChildQuestion(
        effect_id=event.effect_id,
        call_id=event.call_id,
        questions=event.questions,
        seq=step.seq,
        since=event.since,
    )


def _questions_of_others(step: StepBuilder[AwaitingSubAgents], effect_id: int) -> tuple[ChildQuestion, ...]:
    return tuple(question for question in step.state.asked if question.effect_id != effect_id)


def _settle_question(
    step: StepBuilder[AwaitingSubAgents], at: datetime, context: Context, said: Heard | None
) -> AwaitingSubAgents:
    """Answer the question that a person sees; without a text it was declined."""
    shown = step.state.question
    assert shown is not None, "the guard of this row has found a question"
    _answer(step, shown, said)
    take_human_input(step, at, context)
    # Where the limits count anew, the wait so far does not count anyway.
    waited_since = step.state.waits_since if context.has_one_task else at
    asked = tuple(one.replace(settled=True) if one == shown else one for one in step.state.asked)
    return _with_questions(step, asked, at, waited_since)


def _answer(step: StepBuilder[AwaitingSubAgents], question: ChildQuestion, said: Heard | None) -> None:
    step.add_effect(
        AnswerSubAgent(effect_id=step.next_id(), child=question.effect_id, call_id=question.call_id, said=said)
    )


def _with_questions(
    step: StepBuilder[AwaitingSubAgents],
    asked: tuple[ChildQuestion, ...],
    at: datetime,
    waited_since: datetime | None = None,
) -> AwaitingSubAgents:
    """The state with these questions. If a person was waited for and is not any longer, that time does not count."""
    since = waited_since or step.state.waits_since
    is_waiting = not all(question.settled for question in asked)
    if since is not None and not is_waiting:
        leave_out_wait(step, since, at)
    waits_since = (since or at) if is_waiting else None
    return step.same(turn=step.turn, round=step.round, resumes=step.resumes, asked=asked, waits_since=waits_since)


def _end_wait_for_person(step: StepBuilder[AwaitingSubAgents], at: datetime) -> None:
    """Leave out the time in which a person was waited for."""
    if step.state.waits_since is not None:
        leave_out_wait(step, step.state.waits_since, at)


def drop_question_of_cancelled(step: StepBuilder[Cancelling], event: AskUserQuestionPending, context: Context) -> None:
    """A question that arrives after the cancel is not asked. A call that waits for the answer is told to stop."""
    call = step.round.call(event.effect_id)
    if event.suspends:
        tools.suspend(step, call)
        tools.resume(step, call, "cancelled")
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
        tools.take_result(step, event, context)
    else:
        text = texts.did_not_run if event.verdict == "did_not_run" else texts.in_doubt
        step.settle(call.call_id, Made(text=text), error=True)


def take_outcome_of_cancelled(step: StepBuilder[Cancelling], event: SubAgentFinished, context: Context) -> None:
    """A sub-agent has stopped, or had already finished."""
    _take_outcome(step, event)


def take_failure(step: StepBuilder[Cancelling], event: EffectFailed, context: Context) -> None:
    """A tool or a sub-agent failed while it was to stop. If its tool was only asked about the call, it stays unknown
    whether the call ran."""
    if any(child.effect_id == event.effect_id for child in step.round.unfinished):
        _take_outcome(step, event)
    elif (running := step.round.started(event.effect_id)).reconciling is not None:
        step.settle(running.call_id, Made(text=context.policy.texts.in_doubt), error=True)
    else:
        tools.take_failure(step, event, context)


def go_to_branch_when_stopped(step: StepBuilder[Cancelling], event: Branching, context: Context) -> Cancelling:
    """The conversation goes to another branch once everything has stopped. What was under way was paid for when it was
    told to stop."""
    mark_branch(step, event, context)
    return step.same(goes_to=step.goes_to)


def close_when_stopped(step: StepBuilder[Cancelling], event: CloseRequested, context: Context) -> Cancelling:
    """The conversation ends once everything has stopped."""
    return step.same(closing=True)
