"""What is said in a simulation behind the backs of those who take part: by loggers, by asyncio, by Python itself.

A bug often shows there first, as a task whose exception nobody fetched or a coroutine that nobody awaited.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .story import Story


class _Listener(logging.Handler):
    """Passes what the engine logs into the story. What the mailbox could not do anything about is a fault."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.WARNING)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a record."""
        self._story.tell("log", record.getMessage())
        if record.name == "turnwise.mailbox" and record.exc_info:
            self._story.blame(f"{record.getMessage()} {record.exc_info[1]!r}")


@contextmanager
def overheard(story: Story, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While this holds the story hears of it, and nobody else does."""

    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        story.blame(f"{context['message']}: {context.get('exception')!r}")

    logger, listener = logging.getLogger("turnwise"), _Listener(story)
    passed_on, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    loop.set_exception_handler(complain)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = passed_on
    for warning in warned:
        story.blame(str(warning.message))
