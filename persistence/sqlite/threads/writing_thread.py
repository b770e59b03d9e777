"""The thread that writes, as its callers use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ....states.values.acts import MemoryScope
from ..search.follower import Follower
from .log_position import Append
from .receipts import Receipt
from .thread import ConnectionThread
from .writer import Writer


class WritingThread(ConnectionThread):
    """The thread of a `Writer`. The caller of `append` may commit the step itself instead of the thread."""

    _worker: Writer

    @classmethod
    def start(cls, name: str, path: Path | None) -> WritingThread:
        """Start a thread for the database that is called `name` in errors, in this file or in memory."""
        return cls(Writer(name, in_memory=path is None, path=path))

    def append(self, step: Append) -> asyncio.Future[None] | None:
        """Store a step behind its position, which moves on. Returns what is to be awaited, or None if the step is
        stored. A caller that is cancelled stops waiting, but the step is stored.

        Raises `StoreConflict` and `StorageFailed`, here or when it is awaited; then nothing of the step is stored.
        """
        self.check_open()
        if self._worker.commit_inline(step):
            return None
        future = step.make_future()
        self._worker.hand_in(step)
        return future

    async def index(self, scope: MemoryScope | None) -> bool:
        """Index some texts of the conversations of a scope, or of all. Returns whether there are more to index."""
        worker = self._worker
        return bool(await self._done(lambda: worker.follower.follow(worker.connection, scope)))

    @property
    def follower(self) -> Follower:
        """What makes the index follow the logs. To be used in the thread only, within the work that is handed in, apart
        from `is_current`."""
        return self._worker.follower

    def note(self, receipt: Receipt) -> None:
        """Store a receipt with the next commit, or soon. Returns at once."""
        self.check_open()
        self._worker.queue.put(receipt)

    async def flush(self) -> None:
        """Return when the receipts that were handed in are stored, or could not be stored for now."""
        await self._done(self._worker.flush)
