"""The threads of a store without threads: a task of the virtual event loop takes the place of each.

It takes its time before it does anything, so that more is handed in meanwhile and stored together, as with a real disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ....persistence.sqlite.thread import END, Start, Worker
from ..environment.random_source import RandomSource
from ..storage.memory_log import disk_time


class VirtualQueue:
    """A queue whose reader does not block a thread: it awaits `arrived`."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self._signal = asyncio.Event()

    def put(self, item: Any) -> None:
        """Put an item in."""
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Have the reader look whether there is something to do."""
        self._signal.set()

    async def arrived(self, timeout: float | None) -> None:
        """Return when there is an item, or a reason to look, or the time is over."""
        self._signal.clear()
        if not self.items:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signal.wait(), timeout)


def served_by_task(
    chance: RandomSource, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> Start:
    """Return what starts a task that serves a worker. `before` and `after` are called around each piece of work."""

    def start(worker: Worker) -> Callable[[], None]:
        queue: Any = VirtualQueue()
        worker.queue = queue
        serving = asyncio.ensure_future(_serve(worker, queue, chance, before, after))
        return lambda: None if serving.done() else queue.put(END)

    return start


async def _serve(
    worker: Worker, queue: VirtualQueue, chance: RandomSource, before: Callable[[], None], after: Callable[[], None]
) -> None:
    ended = False
    while not ended:
        if not queue.items:
            worker.handle_next()  # receipts may be due
            after()
            await queue.arrived(worker.pause)
            continue
        await disk_time(chance)
        before()
        ended = worker.handle_next()
        worker.report()
        after()
