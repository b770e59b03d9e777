"""What a task waits for while a thread works for it.

To give a result to a task takes one call into its event loop. An executor would need twice as many, which takes longer
than a commit of SQLite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class PendingResult:
    """The outcome of one piece of work, for the task that hands the work in.

    A caller that was cancelled, or whose event loop is closed, receives nothing.
    """

    __slots__ = ("_future", "_loop", "error", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def make_future(self) -> asyncio.Future[Any]:
        """Return what the caller awaits. To be called once, before the work is handed in; `settle` needs it."""
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()
        return self._future

    def settle(self) -> None:
        """Give the caller the outcome. To be called in the thread of its event loop."""
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self.value)
        else:
            self._future.set_exception(self.error)

    @staticmethod
    def report(results: Iterable[PendingResult], here: asyncio.AbstractEventLoop | None = None) -> None:
        """Give each caller the `value` or the `error`. May be called from any thread; `here` is the event loop that
        runs in it, if one does.

        Another event loop is woken once for all of its results, because waking it costs more than committing a step.
        """
        by_loop: dict[asyncio.AbstractEventLoop, list[PendingResult]] = {}
        for result in results:
            by_loop.setdefault(result._loop, []).append(result)
        for loop, reported in by_loop.items():
            if loop is here:
                _settle(reported)
                continue
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, reported)


def _settle(results: list[PendingResult]) -> None:
    for result in results:
        result.settle()
