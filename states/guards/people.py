"""Guards about what a person does: answers to questions, approvals and cancels."""

from __future__ import annotations

from ..context import Context
from ..events import ToolApproval, UserCancel, UserQuestionResponse
from ..state import Busy
from ..states import AwaitingApproval, AwaitingUserResponse, Questioning
from ..step_builder import StepBuilder
from ..values.questions import overanswered_question, unanswered_question, unknown_question


def is_complete(step: StepBuilder[Questioning], event: UserQuestionResponse, context: Context) -> bool:
    """The answers belong to the call that asks now, answer every question, and nothing else."""
    asked = step.state.open_question
    if asked is None or event.call_id not in (None, asked.call_id):
        return False
    return context.policy.questions.partial or (
        unknown_question(asked.questions, {**event.answers, **event.annotations}) is None
        and unanswered_question(asked.questions, event.answers) is None
        and overanswered_question(asked.questions, event.answers) is None
    )


def declines(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> bool:
    """The policy lets the model go on when a question is cancelled."""
    return context.policy.questions.cancel == "resume"


def names_the_call(step: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> bool:
    """The approval is for the call that waits now."""
    return event.call_id == step.state.call.call_id


def comes_too_late(step: StepBuilder[Busy], event: UserCancel, context: Context) -> bool:
    """The cancel names a turn or a question that is over."""
    state = step.state
    if event.turn not in (None, step.turns):
        return True
    return event.call_id not in (None, state.waiting_call_id)
