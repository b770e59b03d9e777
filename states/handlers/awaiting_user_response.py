"""Out of `AwaitingUserResponse`: a person answered, declined, or did neither in time."""

from __future__ import annotations

from ..context import Context
from ..errors import Refused
from ..events import CloseRequested, DeadlineReached, UserCancel, UserQuestionResponse
from ..states import AwaitingUserResponse
from ..step_builder import StepBuilder
from ..values.messages import Made, Said
from ..values.questions import answers_as_text, overanswered_question, unanswered_question, unknown_question
from .awaiting_person import give_up_waiting, hear


def take_answers(step: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> None:
    """The answer is the result of the call that asked."""
    state = step.state
    said: Said = step.heard()
    if context.policy.questions.answer == "readable":
        said = Made(text=answers_as_text(state.questions, event.answers, event.annotations))
    step.settle(state.call.call_id, said)
    hear(step, event.at)


def decline(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The person does not want to answer; the model goes on by its own judgment."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.declined))
    hear(step, event.at)


def go_on_unanswered(step: StepBuilder[AwaitingUserResponse], event: DeadlineReached, context: Context) -> None:
    """Nobody answered in time; the model goes on by its own judgment."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.unanswered))
    give_up_waiting(step, event)


def cancel_question(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The question gets its result; stopping the turn does the rest."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)


def close_question(step: StepBuilder[AwaitingUserResponse], event: CloseRequested, context: Context) -> None:
    """As a cancelled question, and then the conversation ends."""
    step.settle(step.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)
    step.closing = True


def what_is_wrong(step: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> Refused:
    """Why these answers are not taken; the question stays open."""
    questions, answers = step.state.questions, event.answers
    if event.call_id is not None and event.call_id != step.state.call.call_id:
        return Refused("wrong_state")
    if (unknown := unknown_question(questions, {**answers, **event.annotations})) is not None:
        return Refused("unknown_question", unknown)
    if (missing := unanswered_question(questions, answers)) is not None:
        return Refused("missing_answer", missing)
    return Refused("invalid_answer", overanswered_question(questions, answers) or "")
