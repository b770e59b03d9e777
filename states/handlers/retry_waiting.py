"""Row out of `RetryWaiting`: the wait is over."""

from __future__ import annotations

from ..context import Context
from ..events import RetryDue
from ..junctions.asking import send
from ..states import LlmRequesting, RetryWaiting
from ..step_builder import StepBuilder


def ask_again(step: StepBuilder[RetryWaiting], event: RetryDue, context: Context) -> LlmRequesting:
    """The next attempt is sent to the same model."""
    return send(step, event.at, context, attempt=step.state.attempt)
