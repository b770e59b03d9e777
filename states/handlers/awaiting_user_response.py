"""Rows out of `AwaitingUserResponse`: a person answers or declines, or does neither in time."""

from __future__ import annotations

from ..context import Context
from ..errors import NOTHING_WAITS, Refused
from ..events import CloseRequested, DeadlineReached, UserCancel, UserQuestionResponse
from ..states import AwaitingUserResponse
from ..step_builder import StepBuilder
from ..values.messages import Made, Said
from ..values.questions import answers_as_text, overanswered_question, unanswered_question, unknown_question
from .awaiting_person import end_wait, end_wait_at_deadline


def take_answers(step: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> None:
    """The answers are the result of the call that asked."""
    state = step.state
    said: Said = step.heard()
    if context.policy.questions.answer == "readable":
        said = Made(text=answers_as_text(state.questions, event.answers, event.annotations))
    step.settle(state.call.call_id, said)
    end_wait(step, event.at)


def decline(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The person declines to answer, and the model goes on by its own judgment."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.declined))
    end_wait(step, event.at)


def go_on_unanswered(step: StepBuilder[AwaitingUserResponse], event: DeadlineReached, context: Context) -> None:
    """Nobody answered in time, and the model goes on by its own judgment."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.unanswered))
    end_wait_at_deadline(step, event)


def cancel_question(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The question gets a result that says that it was cancelled, and the turn is stopped."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)


def close_question(step: StepBuilder[AwaitingUserResponse], event: CloseRequested, context: Context) -> None:
    """The question is cancelled, and the conversation ends with the turn."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)
    step.closing = True


def what_is_wrong(step: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> Refused:
    """The reason why these answers are refused. The question stays open."""
    questions, answers = step.state.questions, event.answers
    if event.call_id is not None and event.call_id != step.state.call.call_id:
        return Refused("wrong_state", sentence=NOTHING_WAITS[event.type])
    if (unknown := unknown_question(questions, {**answers, **event.annotations})) is not None:
        return Refused("unknown_question", unknown)
    if (missing := unanswered_question(questions, answers)) is not None:
        return Refused("missing_answer", missing)
    return Refused("invalid_answer", overanswered_question(questions, answers) or "")
