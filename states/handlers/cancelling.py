"""Out of `Cancelling`: what was running acknowledges that it stopped, or time is up.

A tool that had truly finished keeps its result (case P7); those are taken as in `tool_executing`.
"""

from __future__ import annotations

from ..context import Context
from ..draft import Draft
from ..events import AskUserQuestionPending, CloseRequested
from ..messages import Made
from ..states import Cancelling


def drop_question(draft: Draft[Cancelling], event: AskUserQuestionPending, context: Context) -> None:
    """A question that comes after the cancel is not asked."""
    call = draft.state.round.call(event.effect_id)
    draft.settle(call.call_id, Made(text=context.policy.texts.cancelled), error=True)


def close_when_stopped(draft: Draft[Cancelling], event: CloseRequested, context: Context) -> Cancelling:
    """The conversation ends once everything has stopped."""
    return draft.same(closing=True)
