"""Out of `RetryWaiting`: the wait is over."""

from __future__ import annotations

from ..context import Context
from ..events import RetryDue
from ..states import LlmRequesting, RetryWaiting
from ..step_builder import StepBuilder
from .asking import send


def ask_again(draft: StepBuilder[RetryWaiting], event: RetryDue, context: Context) -> LlmRequesting:
    """The next attempt at the same model."""
    return send(draft, event.at, context, attempt=draft.state.attempt)
