"""The steps of a turn around its reply: a profile is chosen, older conversations are searched, requests are planned,
the reply is spoken.

Each step is a record of one of four loggers, which name and count things and never quote the conversation. A user who
looks into what happens reads them on stderr, each with its label; otherwise each is a short line on stdout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from typing_extensions import override

from .printable import one_line

STEPS = ("profile", "memory", "planning", "voice")
"""The steps. The logger of each is called `turnwise.` and its name."""


def step_of(record: logging.LogRecord) -> str:
    """Return the step that a record belongs to. `Pure.`"""
    return record.name.rpartition(".")[2]


def log_steps_to(handler: logging.Handler) -> None:
    """Have this handler handle the records of the steps, and no other one."""
    for step in STEPS:
        logger = logging.getLogger(f"turnwise.{step}")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False


class LabelledStep(logging.Formatter):
    """Formats a record as the name of its step in brackets and its message, on one line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return one_line(f"[{step_of(record)}] {record.getMessage()}")


@contextmanager
def steps_shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """Call `show` with a short line for each step while the body runs, in the thread and the event loop of the body."""
    handler = _StepHandler(show)
    levels = {step: logging.getLogger(f"turnwise.{step}").level for step in STEPS}
    for step in STEPS:
        logger = logging.getLogger(f"turnwise.{step}")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for step, level in levels.items():
            logger = logging.getLogger(f"turnwise.{step}")
            logger.removeHandler(handler)
            logger.setLevel(level)


class _StepHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        line = one_line(f"· {step_of(record)}: {record.getMessage()}")
        if get_ident() == self._thread:
            self._show(line)
        else:
            self._loop.call_soon_threadsafe(self._show, line)
