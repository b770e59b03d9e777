"""The parts of a recall, each of which may fail without harm: a turn goes on without what could not be found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..application_functions import Raised, call_within
from ..logs import performer_logger

T = TypeVar("T")

logger = performer_logger("turnwise.memory")

STORE_SECONDS = 5.0
"""Seconds that one search of the store may take. Chosen to be far more than any search of an index takes, and less than
a user waits."""


class PartFailed(Exception):
    """A part could not be obtained. The message says why in a few words, without content."""


async def call_application(seconds: float, name: str, function: Callable[..., object], *arguments: object) -> object:
    """Return what a function of the application returns. Raises `PartFailed` if it fails, or does not end within so
    many seconds."""
    outcome = await call_within(seconds, name, function, *arguments)
    if outcome is None:
        raise PartFailed(f"no answer within {seconds:g} s")
    if isinstance(outcome, Raised):
        raise PartFailed(type(outcome.error).__name__) from outcome.error
    return outcome.value


async def within(seconds: float | None, part: Coroutine[Any, Any, T]) -> T:
    """Return what the part returns. Raises `PartFailed` if it fails, or does not end within so many seconds."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await part
    except PartFailed:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PartFailed("CancelledError") from None  # one that a library has let out; nobody cancelled this task
    except Exception as error:
        if deadline.expired():
            raise PartFailed(f"no answer within {seconds:g} s") from None
        raise PartFailed(type(error).__name__) from error


LeftOut = list[str]
"""Sentences for people: what a recall has left out, and why."""


async def or_else(otherwise: T, name: str, part: Coroutine[Any, Any, T], left_out: LeftOut | None = None) -> T:
    """Return what the part returns, or `otherwise` if it fails; then a sentence is added to `left_out`. The log names
    the part and says why, too; at the level DEBUG it has the error itself, which may hold content."""
    try:
        return await within(None, part)
    except PartFailed as failed:
        logger.warning("left out: %s (%s)", name, failed)
        if left_out is not None:
            left_out.append(f"Recalled without {name}: {failed}.")
        if failed.__cause__ is not None:
            logger.debug("%s failed", name, exc_info=failed.__cause__)
        return otherwise
