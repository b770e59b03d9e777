"""A thread of its own for a connection, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from ..states.errors import StoreError
from .failures import told

T = TypeVar("T")

Opening = Callable[[ExitStack], Connection]
"""Opens a connection, and leaves on the stack what closes it."""


class ConnectionThread:
    """One connection and the only thread that uses it; work is done in the order in which it is handed in.

    Work once handed in is done, whatever becomes of the task that waits for it: a commit is never left in doubt.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="turnwise-store")
        self._undo = ExitStack()
        self._closed = False
        self._connection: Connection

    @classmethod
    async def start(cls, name: str, opening: Opening) -> ConnectionThread:
        """Start a thread and open its connection there. `name` is how people call the database.

        Raises `StoreError`; then nothing stays open. The caller must `close` it.
        """
        thread = cls(name)
        try:
            await asyncio.shield(thread._submit(partial(thread._open, opening)))
        except BaseException:
            await thread.close()
            raise
        return thread

    def _open(self, opening: Opening) -> None:
        with ExitStack() as undo:
            self._connection = opening(undo)
            self._undo = undo.pop_all()

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in the thread, and return what it returns.

        Errors of the driver arrive as `StorageFailed`, all others as they are. A cancelled caller no longer waits,
        but the work is done.
        """
        if self._closed:
            raise StoreError(f"{self._name} is closed.")
        return await asyncio.shield(self._submit(lambda: work(self._connection)))

    async def close(self) -> None:
        """Close the connection once the work handed in before is done. To close twice is to close once."""
        if self._closed:
            return
        self._closed = True
        closing = self._submit(lambda: self._undo.close())
        self._executor.shutdown(wait=False)
        await asyncio.shield(closing)

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, self._told, work)

    def _told(self, work: Callable[[], T]) -> T:
        with told(self._name):
            return work()
