"""The threads of a store without threads: a task of the virtual loop takes their place.

It takes its time before it does anything, so more comes in meanwhile and is stored together, as behind a real disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

from ....persistence.sqlite.thread import ConnectionThread, Worker
from ....persistence.sqlite.writer import WritingThread
from ..random_source import RandomSource
from ..store import wait


class NothingYet(Exception):
    """Somebody wants to wait for the next thing, for so long at most."""

    def __init__(self, patience: float | None) -> None:
        super().__init__(patience)
        self.patience = patience


class Tray:
    """A queue that nobody waits at: who wants to is told that there is nothing yet."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: Any) -> None:
        """Put something in."""
        self._items.append(item)
        self._arrived.set()

    def get(self, timeout: float | None = None) -> Any:
        """Take the oldest thing out. Raises `NothingYet`."""
        if not self._items:
            raise NothingYet(timeout)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """The same. Raises `queue.Empty`."""
        if not self._items:
            raise Empty
        return self._items.popleft()

    async def arrived(self, patience: float | None) -> None:
        """Return when there is something, or the patience is over."""
        self._arrived.clear()
        if not self._items:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), patience)


class Served(ConnectionThread):
    """A connection that a task works with. `before` and `after` are called around each piece of work."""

    def __init__(
        self, worker: Worker, dice: RandomSource, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        self._worker = worker
        self._closed = False
        tray: Any = Tray()
        worker.queue = self._tray = tray
        self._serving = asyncio.ensure_future(self._serve(worker, dice, before, after))

    async def _serve(
        self, worker: Worker, dice: RandomSource, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        while True:
            try:
                item = worker.take()
            except NothingYet as nothing:
                after()  # receipts may have been stored
                await self._tray.arrived(nothing.patience)
                continue
            if item is None:
                return
            await wait(dice)
            before()
            worker.handle(item)
            after()


class ServedWriting(Served, WritingThread):
    """The same for the connection that writes."""
