"""Calls the function of a tool so that it can neither block nor break the engine, within the tool's timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

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
        self._seconds_left = tool.timeout
        self._awaited: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._attempt(tool, partial(tool.function, **arguments)))
        self._task.add_done_callback(self._wake)  # code of the application may cancel the task before it begins

    async def _attempt(self, tool: AnyTool, call: Callable[[], object]) -> Outcome:
        """Make the call, and then wake who waits: a callback of the task does that an iteration of the event loop
        later."""
        outcome = await attempt(f"tool {tool.name}", call, is_coroutine=tool.is_coroutine_function)
        self._wake()
        return outcome

    async def wait(self, other: asyncio.Future[None] | None = None) -> Outcome | Paused | None:
        """Return how the call ended; `PAUSED` as soon as `other` is done; None if the time of the call runs out first,
        and then the call is stopped. If the waiting task is cancelled, so is the call, as `call_function` describes."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds_left
        try:
            if not self._task.done():
                await self._first(other, due)
            if not self._task.done():
                self._seconds_left = max(0.0, due - loop.time())
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

    async def _first(self, other: asyncio.Future[None] | None, due: float) -> None:
        """Return when the function has ended, when `other` is done, or when it is `due`."""
        loop = asyncio.get_running_loop()
        self._awaited = loop.create_future()
        timer = loop.call_at(due, self._wake)
        if other is not None:
            other.add_done_callback(self._wake)
        try:
            await self._awaited
        finally:
            timer.cancel()
            if other is not None:
                other.remove_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def stop(self) -> None:
        """Cancel the function, and wait until it has ended, for at most `GRACE`."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=GRACE)

    def _outcome(self) -> Outcome:
        return Raised(asyncio.CancelledError()) if self._task.cancelled() else self._task.result()
