"""How a wait for a person ends: an approval, an answer, a refusal, or the deadline.

Rows out of `AwaitingUserResponse`, where a person answers or declines, and out of `AwaitingApproval`, where a person
allows or denies a call; in both a person may do neither in time. If the call that asks has ended, what the person does
is its result. If it suspends, it learns of that and goes on.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..context import Context
from ..effects import Abort, Reply
from ..errors import NOTHING_WAITS, Refused
from ..events import (
    Branching,
    CloseRequested,
    DeadlineReached,
    Resumed,
    ToolApproval,
    ToolInterrupted,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..junctions import leave_out_wait, mark_branch, take_human_input
from ..states import AwaitingApproval, AwaitingPerson, AwaitingUserResponse, Questioning
from ..step_builder import StepBuilder
from ..values.messages import Made
from ..values.questions import answers_as_text, overanswered_question, unanswered_question, unknown_question
from . import tools, turns
from .tools import resume


def take_answers(step: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> None:
    """The answers are the result of the call that asked, or are passed on to it."""
    state = step.state
    if state.suspends:
        resume(step, state.call, "answered", step.heard())
    elif context.policy.questions.answer == "readable":
        text = answers_as_text(state.questions, event.answers, event.annotations)
        step.settle(state.call.call_id, Made(text=text))
    else:
        step.settle(state.call.call_id, step.heard())
    end_wait(step, event.at, context)


def decline(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The person declines to answer, and the model or the call goes on by its own judgment."""
    step.note_heard(event)
    _end_question(step, "declined", context.policy.texts.declined)
    end_wait(step, event.at, context)


def go_on_unanswered(step: StepBuilder[AwaitingUserResponse], event: DeadlineReached, context: Context) -> None:
    """Nobody answered in time, and the model or the call goes on by its own judgment."""
    _end_question(step, "unanswered", context.policy.texts.unanswered)
    _end_wait_at_deadline(step, event)


def cancel_question(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The question gets a result that says that it was cancelled, or its call is to stop; and the turn is stopped."""
    step.note_heard(event)
    _end_question(step, "cancelled", context.policy.texts.question_cancelled, error=True)


def interrupt_question(step: StepBuilder[AwaitingUserResponse], event: UserMessage, context: Context) -> None:
    """The question is cancelled, and the message begins the next turn."""
    turns.interrupt(step, event, context)
    _end_question(step, "cancelled", context.policy.texts.question_cancelled, error=True)


def close_question(step: StepBuilder[AwaitingUserResponse], event: CloseRequested, context: Context) -> None:
    """The question is cancelled, and the conversation ends with the turn."""
    _end_question(step, "cancelled", context.policy.texts.question_cancelled, error=True)
    step.closing = True


def leave_question(step: StepBuilder[AwaitingUserResponse], event: Branching, context: Context) -> None:
    """The question is cancelled, and the conversation goes to another branch behind the turn."""
    _end_question(step, "cancelled", context.policy.texts.question_cancelled, error=True)
    mark_branch(step, event, context)


def _end_question(step: StepBuilder[AwaitingUserResponse], reply: Reply, text: str, *, error: bool = False) -> None:
    """End the question without answers: a call that suspends gets the reply, another one the text as its result."""
    call = step.state.call
    if step.state.suspends:
        resume(step, call, reply)
    else:
        step.settle(call.call_id, Made(text=text), error=error)


def doubt_interrupted(step: StepBuilder[AwaitingUserResponse], event: ToolInterrupted, context: Context) -> None:
    """A crash hit the call that waited for the answer, and it must not run twice: a person has to decide."""
    tools.doubt_interrupted(step, event, context)
    _abort_deadline(step)


def take_up(step: StepBuilder[AwaitingUserResponse], event: ToolInterrupted, context: Context) -> None:
    """A crash hit the call that waited for the answer. It runs again, and may ask again; or its tool is asked first
    whether the call ran."""
    tools.take_up(step, event, context)
    _abort_deadline(step)


def give_up(step: StepBuilder[AwaitingUserResponse], event: Resumed, context: Context) -> None:
    """The question was asked elsewhere, and nobody answers it here."""
    if not step.state.suspends:
        step.settle(step.state.call.call_id, Made(text=context.policy.texts.unanswered), error=True)
    tools.give_up(step, event, context)


def what_is_wrong(step: StepBuilder[Questioning], event: UserQuestionResponse, context: Context) -> Refused:
    """The reason why these answers are refused. The question stays open."""
    asked, answers = step.state.open_question, event.answers
    if asked is None or event.call_id not in (None, asked.call_id):
        return Refused("wrong_state", sentence=NOTHING_WAITS[event.type])
    questions = asked.questions
    if (unknown := unknown_question(questions, {**answers, **event.annotations})) is not None:
        return Refused("unknown_question", unknown)
    if (missing := unanswered_question(questions, answers)) is not None:
        return Refused("missing_answer", missing)
    return Refused("invalid_answer", overanswered_question(questions, answers) or "")


def take_approval(step: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> None:
    """A call that is allowed may start, with the person's arguments if there are any; a call that is denied has its
    result."""
    call = step.state.call
    if event.allowed:
        step.round = step.round.allow(call)
    else:
        denied = context.policy.texts.denied
        step.settle(call.call_id, Made(text=f"{denied}: {event.note}" if event.note else denied), error=True)
    end_wait(step, event.at, context)


def deny_in_time(step: StepBuilder[AwaitingApproval], event: DeadlineReached, context: Context) -> None:
    """The call was not allowed in time, so it does not run."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.denied_in_time), error=True)
    _end_wait_at_deadline(step, event)


P = TypeVar("P", bound=AwaitingPerson)


def end_wait(step: StepBuilder[P], at: datetime, context: Context) -> None:
    """End the wait because the person acted, and abort the deadline."""
    take_human_input(step, at, context, step.state.since)
    _abort_deadline(step)


def _abort_deadline(step: StepBuilder[P]) -> None:
    """Abort the timer that limits the wait, if there is one."""
    if step.state.deadline is not None:
        step.add_effect(Abort(effect_id=step.state.deadline.effect_id))


def _end_wait_at_deadline(step: StepBuilder[P], event: DeadlineReached) -> None:
    """End the wait because nobody acted. The time of the wait does not count against the turn's limit."""
    leave_out_wait(step, step.state.since, event.at)
