"""Out of `ToolExecuting`: a tool ended, or it wants to ask a person."""

from __future__ import annotations

from ..context import Context
from ..draft import Draft
from ..events import AskUserQuestionPending, EffectFailed, ToolAborted, ToolComplete
from ..messages import Made
from ..states import AwaitingUserResponse, Cancelling, ToolExecuting
from ..value import later


def take_result(draft: Draft[ToolExecuting | Cancelling], event: ToolComplete, context: Context) -> None:
    """The call has its result."""
    call = draft.state.round.call(event.effect_id)
    draft.settle(call.call_id, draft.heard(), error=event.result.error)


def take_failure(draft: Draft[ToolExecuting | Cancelling], event: EffectFailed, context: Context) -> None:
    """The tool could not be run; why is its result."""
    draft.settle(draft.state.round.call(event.effect_id).call_id, draft.heard(), error=True)


def take_abort(draft: Draft[ToolExecuting | Cancelling], event: ToolAborted, context: Context) -> None:
    """The tool was stopped."""
    call = draft.state.round.call(event.effect_id)
    draft.settle(call.call_id, Made(text=context.policy.texts.cancelled), error=True)


def refuse_question(draft: Draft[ToolExecuting], event: AskUserQuestionPending, context: Context) -> None:
    """A question beside tools that still run cannot pause the machine; the model is told so."""
    call = draft.state.round.call(event.effect_id)
    draft.settle(call.call_id, Made(text=context.policy.texts.question_not_exclusive), error=True)


def ask(draft: Draft[ToolExecuting], event: AskUserQuestionPending, context: Context) -> AwaitingUserResponse:
    """Rest until a person answers; the calls behind the question keep their place in the round."""
    call = draft.state.round.call(event.effect_id)
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
