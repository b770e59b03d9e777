"""The threads of a store without threads: a task of the virtual event loop takes the place of each.

It takes its time before it does anything, so that more is handed in meanwhile and stored together, as with a real disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

from ....persistence.sqlite.threads.thread import Start, Worker
from ..environment.random_source import RandomSource
from ..storage.memory_log import disk_time


class NothingYet(Exception):
    """The queue is empty, and its reader wants to wait for the next item, for so long at most."""

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self.timeout = timeout


class VirtualQueue:
    """A queue whose reader never blocks: it is told by `NothingYet` that there is nothing."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: Any) -> None:
        """Put an item in."""
        self._items.append(item)
        self._arrived.set()

    def get(self, timeout: float | None = None) -> Any:
        """Take the oldest item out. Raises `NothingYet`."""
        if not self._items:
            raise NothingYet(timeout)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Take the oldest item out. Raises `queue.Empty`."""
        if not self._items:
            raise Empty
        return self._items.popleft()

    async def arrived(self, timeout: float | None) -> None:
        """Return when there is an item, or the time is over."""
        self._arrived.clear()
        if not self._items:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout)


def served_by_task(
    chance: RandomSource, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> Start:
    """Return what starts a task that serves a worker. `before` and `after` are called around each piece of work."""

    def start(worker: Worker) -> Callable[[], None]:
        queue: Any = VirtualQueue()
        worker.queue = queue
        serving = asyncio.ensure_future(_serve(worker, queue, chance, before, after))
        return lambda: None if serving.done() else queue.put(None)

    return start


async def _serve(
    worker: Worker, queue: VirtualQueue, chance: RandomSource, before: Callable[[], None], after: Callable[[], None]
) -> None:
    while True:
        try:
            item = worker.take()
        except NothingYet as nothing:
            after()  # receipts may have been stored
            await queue.arrived(nothing.timeout)
            continue
        if item is None:
            return
        await disk_time(chance)
        before()
        worker.handle(item)
        after()
