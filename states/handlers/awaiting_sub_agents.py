"""Rows out of `AwaitingSubAgents`: the sub-agents finish one by one, ask the user, or their deadline passes.

Each outcome is kept by reference until all sub-agents have finished. Together the outcomes are the result of the call
that started them, so each reaches the model exactly once.

A sub-agent has no user of its own. What it asks is shown to the user here, one question after the other, and the answer
is passed on to it.
"""

from __future__ import annotations

from datetime import datetime

from ..context import Context
from ..effects import Abort, AnswerSubAgent, CancelSubAgent
from ..errors import Refused
from ..events import (
    DeadlineReached,
    EffectFailed,
    SubAgentAsked,
    SubAgentFinished,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..junctions.human_input import leave_out_wait, take_human_input
from ..junctions.rounds import settle_children
from ..state import InTurn
from ..states import AwaitingSubAgents
from ..step_builder import StepBuilder
from ..values.children import Child, ChildQuestion
from ..values.messages import Heard, Usage

# --- outcomes


def take_outcome(step: StepBuilder[InTurn], event: SubAgentFinished | EffectFailed) -> None:
    """Note the outcome of this sub-agent. A sub-agent that could not be started counts as failed."""
    status = event.status if isinstance(event, SubAgentFinished) else "failed"
    if isinstance(event, SubAgentFinished):
        step.spend(event.usage)
    step.round = step.round.finish(event.effect_id, status, step.heard())


def keep_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> AwaitingSubAgents:
    """The outcome is noted; other sub-agents still work."""
    take_outcome(step, event)
    return _with_questions(step, _questions_of_others(step, event.effect_id), event.at)


def take_last_outcome(
    step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context
) -> None:
    """All sub-agents have finished, and the call has its result."""
    take_outcome(step, event)
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
