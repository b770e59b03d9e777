"""Calls the function of a tool so that it can neither block nor break the engine, within the tool's timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial

from ..application_functions import Outcome, Raised, Returned, attempt
from .tool import AnyTool

GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is abandoned. Chosen to be longer than an ordinary
clean-up, and short enough for a user who waits."""


async def call_function(tool: AnyTool, arguments: dict[str, object]) -> Outcome | None:
    """Call the tool's function, and return how the call ended; None if it did not end within the tool's timeout.

    Takes at most that timeout and `GRACE`. Raises only CancelledError, when the caller's task is cancelled: a coroutine
    is then cancelled and awaited for `GRACE`, a thread is abandoned. If a coroutine returns all the same, its outcome
    is returned and the cancel has no effect.
    """
    return await _wait(tool.timeout, attempt(f"tool {tool.name}", partial(tool.function, **arguments)))


async def _wait(seconds: float, attempted: Coroutine[object, object, Outcome]) -> Outcome | None:
    """The outcome of the attempt, or None if it did not end in time."""
    task = asyncio.create_task(attempted)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return _outcome(task)
        await _stop(task)
        return None
    except asyncio.CancelledError:
        await _stop(task)
        if task.done() and isinstance(outcome := _outcome(task), Returned):
            return outcome
        raise


async def _stop(task: asyncio.Task[Outcome]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)


def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
