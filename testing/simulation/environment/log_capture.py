"""Captures what is logged and warned about during a simulation: by turnwise, by asyncio, by Python itself.

A bug often shows there first, as a task whose exception nobody retrieved or a coroutine that nobody awaited.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .event_trace import EventTrace


class _TraceHandler(logging.Handler):
    """Adds what turnwise logs to the trace. An unexpected error in the mailbox is a fault."""

    def __init__(self, trace: EventTrace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        self._trace.record("log", record.getMessage())
        if record.name == "turnwise.mailbox" and record.exc_info:
            self._trace.report_fault(f"{record.getMessage()} {record.exc_info[1]!r}")


@contextmanager
def captured_logs(trace: EventTrace, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While this holds, logs and warnings go into the trace and nowhere else."""

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        trace.report_fault(f"{context['message']}: {context.get('exception')!r}")

    logger, handler = logging.getLogger("turnwise"), _TraceHandler(trace)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    loop.set_exception_handler(report)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
    for warning in warned:
        trace.report_fault(str(warning.message))
