"""The thread that writes: whatever steps are waiting when it is free go to the disk together.

A commit waits for the disk, and waits as long for one step as for a hundred. So the steps that come in while one commit
runs make up the next one, with one statement a table; a step that comes alone is never kept waiting for others.

Together is the fast way, not another meaning. Where a batch cannot be stored it is undone and its steps are stored one
by one, so that one which lost its race, or is too much for the disk, fails alone.

Receipts of what was delivered ride along with a commit, or make one of their own when they have waited long enough.
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

from ..errors import StoreConflict
from ..records.codec import EncodedStep
from ..records.outbox import Outgoing
from . import recorder, transaction
from .failures import as_storage_failure, is_locked
from .log_position import Append, LogPosition
from .pending_result import PendingResult
from .receipts import PendingReceipts, Receipt
from .recorder import Advance
from .thread import ConnectionThread, Worker

logger = logging.getLogger("turnwise.store")

_WAKE = object()
"""Nothing to do, only a reason to wake up."""


class Outrun(Exception):
    """A conversation does not stand where a step takes it from."""


class Writer(Worker):
    """The half of the writing thread that lives there."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name)
        self._ahead: deque[Any] = deque()
        """What was taken from the queue before its turn."""
        self._receipts = PendingReceipts(monotonic)

    # --- what comes next

    def take(self) -> Any:
        """Wait for the next item. Receipts that have waited long enough are stored meanwhile."""
        if self._ahead:
            return self._ahead.popleft()
        while self._receipts:
            patience = self._receipts.patience
            if patience <= 0:
                self.flush()
                continue
            with suppress(Empty):
                return self.queue.get(timeout=patience)
        return self.queue.get()

    def handle(self, item: Any) -> None:
        """Store a step with all that wait behind it, keep a receipt, or do the work of a job."""
        if isinstance(item, Append):
            self._store(self._batch(item))
        elif isinstance(item, Receipt):
            self._receipts.add(item)
        elif item is not _WAKE:
            super().handle(item)

    def close(self) -> None:
        """Close the connection; receipts that still wait are stored first, if the disk lets them."""
        self.flush()
        super().close()

    def _batch(self, first: Append) -> list[Append]:
        """The steps that wait, up to the first thing of another kind. A second step of a conversation is left for the
        next commit: its link follows from the first."""
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
                append.position.head, append.position.in_doubt = step.following, None
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
                raise Outrun
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
        """Store the receipts that wait; if the disk does not take them, they are tried again later."""
        if not self._receipts:
            return
        try:
            with transaction.writing(self._driver):
                self._receipts.write(self._driver)
        except Exception as error:
            failure = as_storage_failure(self.name, error)
            logger.warning("The receipts of deliveries could not be stored and are kept: %s", failure)
            self._receipts.put_off()
        else:
            self._receipts.clear()

    @property
    def _driver(self) -> sqlite3.Connection:
        return transaction.driver_of(self.connection)


def _may_have_stored(error: Exception) -> bool:
    """Whether the disk may have stored a transaction that failed with this error."""
    return not (isinstance(error, Outrun | sqlite3.IntegrityError) or is_locked(error))


class WritingThread(ConnectionThread):
    """The thread that writes, as others hold it."""

    _worker: Writer

    @classmethod
    def start(cls, name: str) -> WritingThread:
        """A thread for the database that people call `name`."""
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

    def note(self, receipt: Receipt) -> None:
        """Store this with the next commit, or soon. Does not wait."""
        self.check_open()
        self._worker.queue.put(receipt)

    async def flush(self) -> None:
        """Wait until the receipts handed in so far are stored, or could not be."""
        await self._done(self._worker.flush)
