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


def take_answers(draft: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> None:
    """The answer is the result of the call that asked."""
    state = draft.state
    said: Said = draft.heard()
    if context.policy.questions.answer == "readable":
        said = Made(text=answers_as_text(state.questions, event.answers, event.annotations))
    draft.settle(state.call.call_id, said)
    hear(draft, event.at)


def decline(draft: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The person does not want to answer; the model goes on by its own judgment."""
    draft.settle(draft.state.call.call_id, Made(text=context.policy.texts.declined))
    hear(draft, event.at)


def go_on_unanswered(draft: StepBuilder[AwaitingUserResponse], event: DeadlineReached, context: Context) -> None:
    """Nobody answered in time; the model goes on by its own judgment."""
    draft.settle(draft.state.call.call_id, Made(text=context.policy.texts.unanswered))
    give_up_waiting(draft, event)


def cancel_question(draft: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> None:
    """The question gets its result; stopping the turn does the rest."""
    draft.settle(draft.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)


def close_question(draft: StepBuilder[AwaitingUserResponse], event: CloseRequested, context: Context) -> None:
    """As a cancelled question, and then the conversation ends."""
    draft.settle(draft.state.call.call_id, Made(text=context.policy.texts.question_cancelled), error=True)
    draft.closing = True


def what_is_wrong(draft: StepBuilder[AwaitingUserResponse], event: UserQuestionResponse, context: Context) -> Refused:
    """Why these answers are not taken; the question stays open (case P14)."""
    questions, answers = draft.state.questions, event.answers
    if event.call_id is not None and event.call_id != draft.state.call.call_id:
        return Refused("wrong_state")
    if (unknown := unknown_question(questions, {**answers, **event.annotations})) is not None:
        return Refused("unknown_question", unknown)
    if (missing := unanswered_question(questions, answers)) is not None:
        return Refused("missing_answer", missing)
    return Refused("invalid_answer", overanswered_question(questions, answers) or "")
