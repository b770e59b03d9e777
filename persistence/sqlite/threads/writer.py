"""The thread that writes: steps that wait at the same time are committed together.

A commit waits for the disk, and waits as long for one step as for a hundred. So the steps that arrive during one commit
are the batch of the next one, with one statement for each table. A step that arrives alone never waits for others.

Batches change the speed only. A batch that cannot be stored is rolled back, and its steps are stored one by one, so
that only a step that is in conflict, or too large for the disk, fails.

Receipts of deliveries are stored with a commit, or in a commit of their own when they have waited long enough.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

from ....states.values.memory import MemoryScope
from ...errors import StoreConflict
from ...records.codec import EncodedStep
from ...records.outbox import Outgoing
from ..file import transaction
from ..file.failures import as_storage_failure, is_locked
from ..search.follower import Follower
from ..tables import recorder
from ..tables.recorder import Advance
from .log_position import Append, LogPosition
from .pending_result import PendingResult
from .receipts import PendingReceipts, Receipt
from .thread import ConnectionThread, Worker

logger = logging.getLogger("turnwise.store")

_WAKE = object()
"""Nothing to do, only a reason to wake up."""


class MovedOn(Exception):
    """A conversation is not at the step that a new step follows."""


class Writer(Worker):
    """What runs in the thread that writes."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name)
        self._ahead: deque[Any] = deque()
        """Items that were taken from the queue and are handled next."""
        self._receipts = PendingReceipts(monotonic)
        self.follower = Follower(monotonic)
        """What makes the index of texts follow the logs."""

    # --- what comes next

    def take(self) -> Any:
        """Wait for the next item. Receipts that have waited long enough are stored meanwhile, and texts are indexed
        in idle moments."""
        if self._ahead:
            return self._ahead.popleft()
        self.follower.postpone()
        while self._receipts or self.follower:
            with suppress(Empty):
                return self.queue.get_nowait()
            if self._receipts and self._receipts.remaining <= 0:
                self.flush()
            elif self.follower and self.follower.remaining <= 0:
                self._index()
            else:
                with suppress(Empty):
                    return self.queue.get(timeout=self._remaining())
        return self.queue.get()

    def _remaining(self) -> float:
        """For how many seconds there is nothing to do but to wait for an item."""
        waits = [each.remaining for each in (self._receipts, self.follower) if each]
        return max(min(waits), 0.0)

    def handle(self, item: Any) -> None:
        """Store a step with all that wait behind it, keep a receipt, or do a job."""
        if isinstance(item, Append):
            self._store(self._batch(item))
        elif isinstance(item, Receipt):
            self._receipts.add(item)
        elif item is not _WAKE:
            super().handle(item)

    def close(self) -> None:
        """Store the receipts that still wait, if the disk takes them, and close the connection."""
        self.flush()
        super().close()

    def _batch(self, first: Append) -> list[Append]:
        """Return the steps that wait, up to the first item of another kind. A second step of a conversation is left for
        the next commit, because its link depends on the first."""
        batch = {first.position.head.key: first}
        with suppress(Empty):
            while not self._ahead:
                item = self.queue.get_nowait()
                if item is _WAKE:
                    continue
                if isinstance(item, Receipt):
                    self._receipts.add(item)
                elif isinstance(item, Append) and item.position.head.key not in batch:
                    batch[item.position.head.key] = item
                else:
                    self._ahead.append(item)
        return list(batch.values())

    # --- steps

    def _store(self, batch: list[Append]) -> None:
        steps: list[tuple[Append, Advance]] = []
        for append in batch:
            try:
                steps.append((append, append.advance()))
            except StoreConflict as conflict:
                append.result.error = conflict
        for (append, step), error in zip(steps, self._commit(steps), strict=True):
            if error is None:
                append.position.move(step)
                self.follower.note(step.head.key)
            else:
                append.result.error = as_storage_failure(self.name, error)
        PendingResult.report(append.result for append in batch)

    def _commit(self, steps: list[tuple[Append, Advance]]) -> list[Exception | None]:
        """Store the steps, all together if possible. Returns for each of them why it could not be stored."""
        try:
            if steps:
                self._commit_together([step for _, step in steps])
            return [None] * len(steps)
        except Exception as error:
            errors: list[Exception | None] = []
            locked = error if is_locked(error) else None
            for append, step in steps:
                if _may_have_stored(error):
                    append.position.in_doubt = step.following.chain
                failed = locked or self._commit_alone(append.position, step)
                locked = failed if failed is not None and is_locked(failed) else None
                errors.append(failed)
            return errors

    def _commit_together(self, steps: list[Advance]) -> None:
        with transaction.writing(self._driver):
            if not recorder.advance(self._driver, steps):
                raise MovedOn
            self._receipts.write(self._driver)
        self._receipts.clear()

    def _commit_alone(self, position: LogPosition, step: Advance) -> Exception | None:
        """Store one step. If an earlier attempt is in doubt, find out whether it did store the step."""
        following = step.following
        try:
            with transaction.writing(self._driver):
                stored = recorder.advance(self._driver, [step])
                if not stored and position.in_doubt == following.chain:
                    stored = recorder.write_again(self._driver, following)
        except sqlite3.IntegrityError as error:
            conflict = StoreConflict("The request, or the answer to the effect, is already in the log.")
            conflict.__cause__ = error
            return conflict
        except Exception as error:
            if _may_have_stored(error):
                position.in_doubt = following.chain
            return error
        return None if stored else StoreConflict("The conversation has moved on, or was deleted, since it was loaded.")

    # --- receipts

    def flush(self) -> None:
        """Store the receipts. If the disk does not take them they are tried again later."""
        if not self._receipts:
            return
        try:
            with transaction.writing(self._driver):
                self._receipts.write(self._driver)
        except Exception as error:
            failure = as_storage_failure(self.name, error)
            logger.warning("The receipts of deliveries could not be stored and are kept: %s", failure)
            self._receipts.retry_later()
        else:
            self._receipts.clear()

    # --- texts

    def _index(self) -> None:
        """Index some texts. If that fails the index is behind until somebody searches, who is told why."""
        try:
            self.follower.follow(self.connection)
        except Exception as error:
            logger.warning("What was said could not be indexed: %s", as_storage_failure(self.name, error))
            self.follower.forget()

    @property
    def _driver(self) -> sqlite3.Connection:
        return transaction.driver_of(self.connection)


def _may_have_stored(error: Exception) -> bool:
    """Whether the disk may have stored a transaction that failed with this error."""
    return not (isinstance(error, MovedOn | sqlite3.IntegrityError) or is_locked(error))


class WritingThread(ConnectionThread):
    """The thread that writes, as its callers use it."""

    _worker: Writer

    @classmethod
    def start(cls, name: str) -> WritingThread:
        """Start a thread for the database that is called `name` in errors."""
        return cls(Writer(name))

    async def append(self, position: LogPosition, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        """Store a step behind `position`, which moves on. A cancelled caller stops waiting, but the step is stored.

        Raises `StoreConflict` and `StorageFailed`; then nothing of the step is stored.
        """
        self.check_open()
        append = Append(position, step, outgoing)
        self._worker.queue.put(append)
        await append.result.future

    def wake(self) -> None:
        """Wake the thread while the caller still encodes the step that it is about to hand in.

        The operating system takes as long to wake a thread as it takes to encode a step, so the two happen at once.
        """
        self._worker.queue.put(_WAKE)

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
