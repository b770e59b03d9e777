"""Calls the function of a tool so that it can neither block nor break the engine, within the tool's timeout."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from ..application_functions import Outcome, Raised, Returned, attempt
from .tool import AnyTool

GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is abandoned. Chosen to be longer than an ordinary
clean-up, and short enough for a user who waits."""


class Paused:
    """The function has not ended, and its time has not run out: something else was waited for, too, and has come."""


PAUSED = Paused()


async def call_function(tool: AnyTool, arguments: dict[str, object]) -> Outcome | None:
    """Call the tool's function, and return how the call ended; None if it did not end within the tool's timeout.

    Takes at most that timeout and `GRACE`. Raises only CancelledError, when the caller's task is cancelled: a coroutine
    is then cancelled and awaited for `GRACE`, a thread is abandoned. If a coroutine returns all the same, its outcome
    is returned and the cancel has no effect.
    """
    outcome = await FunctionCall(tool, arguments).wait()
    assert not isinstance(outcome, Paused), "nothing else is waited for"
    return outcome


class FunctionCall:
    """A call of the tool's function, which begins at once. Its time runs only while somebody waits for it."""

    def __init__(self, tool: AnyTool, arguments: dict[str, object]) -> None:
        call = partial(tool.function, **arguments)
        attempting = attempt(f"tool {tool.name}", call, is_coroutine=tool.is_coroutine_function)
        self._task = asyncio.create_task(attempting)
        self._seconds_left = tool.timeout

    async def wait(self, other: asyncio.Future[None] | None = None) -> Outcome | Paused | None:
        """Return how the call ended; `PAUSED` as soon as `other` is done; None if the time of the call runs out first,
        and then the call is stopped. If the waiting task is cancelled, so is the call, as `call_function` describes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._first(other)
            if not self._task.done():
                self._seconds_left = max(0.0, self._seconds_left - (loop.time() - began))
                if other is not None and other.done():
                    return PAUSED
                await self.stop()
                return None
            return self._outcome()
        except asyncio.CancelledError:
            await self.stop()
            if self._task.done() and isinstance(outcome := self._outcome(), Returned):
                return outcome
            raise

    async def _first(self, other: asyncio.Future[None] | None) -> None:
        """Return when the function has ended, when `other` is done, or when the time has run out. `asyncio.wait` does
        the same, but takes half a percent of the instructions of a turn with one tool more."""
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not awaited.done():
                awaited.set_result(None)

        sources: list[asyncio.Future[Any]] = [self._task] if other is None else [self._task, other]
        timer = loop.call_later(self._seconds_left, wake)
        for source in sources:
            source.add_done_callback(wake)
        try:
            await awaited
        finally:
            timer.cancel()
            for source in sources:
                source.remove_done_callback(wake)

    async def stop(self) -> None:
        """Cancel the function, and wait until it has ended, for at most `GRACE`."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=GRACE)

    def _outcome(self) -> Outcome:
        return Raised(asyncio.CancelledError()) if self._task.cancelled() else self._task.result()
