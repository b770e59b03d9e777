"""What a thread tells a task: that its work is done, or why it could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class PendingResult:
    """That one piece of work will be done: made by the task that hands the work in, which then awaits `future`.

    Who no longer waits, because he was cancelled or his loop is closed, is not told.
    """

    __slots__ = ("_loop", "error", "future", "result")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    @staticmethod
    def report(results: Iterable[PendingResult]) -> None:
        """Tell all of them their `result`, or their `error`. To be called from any thread.

        A loop is woken once for all of its tasks: to wake it costs more than to commit a step.
        """
        by_loop: dict[asyncio.AbstractEventLoop, list[PendingResult]] = {}
        for result in results:
            by_loop.setdefault(result._loop, []).append(result)
        for loop, told in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, told)


def _settle(results: list[PendingResult]) -> None:
    for result in results:
        if result.future.done():
            continue
        if result.error is None:
            result.future.set_result(result.result)
        else:
            result.future.set_exception(result.error)
