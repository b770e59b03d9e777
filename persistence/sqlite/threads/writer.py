"""The thread that writes: steps that wait at the same time are committed together.

The steps that arrive during one commit are the batch of the next one; `commits` says how a batch is stored.

Receipts of deliveries are stored with a commit, or in a commit of their own when they have waited long enough.

Where `inline_commits` finds that it pays, the thread of the event loop commits what it hands in by itself. Such a
commit waits for nothing but the disk: if another program holds the file, or anything else fails, the steps go to the
writing thread, which tries again, may wait, and finds out what became of a commit in doubt. Checkpoints, which copy the
write-ahead log into the file, are left to the writing thread as well. While the thread makes one, or commits, the event
loop waits for it, as long as for a quick disk: the thread has the interpreter to itself then, and is done several times
sooner than while both run.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import FileGone, StoreConflict
from .. import erasure
from ..file import transaction
from ..file.failures import as_storage_failure
from ..file.open_files import OpenFiles
from ..search.follower import Follower
from .commit_mode import CommitMode
from .commits import Commits
from .gathering import Gathering
from .inline_commits import LONGEST, InlineCommits
from .log_position import Append
from .pending_result import PendingResult
from .receipts import PendingReceipts, Receipt
from .thread import Job, Opening, Worker

logger = logging.getLogger("turnwise.store")


class Writer(Worker):
    """What runs in the thread that writes."""

    def __init__(
        self,
        name: str,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        in_memory: bool = False,
        path: Path | None = None,
    ) -> None:
        super().__init__(name)
        self._path = path
        self._files: OpenFiles | None = None
        self._monotonic = monotonic
        self._mode = CommitMode(has_log=not in_memory)
        self._is_open = False
        self._driver: sqlite3.Connection
        self._commits: Commits
        self.inline = InlineCommits(always=in_memory)
        """Decides which steps are committed by the thread that hands them in."""
        self._gathering = Gathering(self._store_gathered, self._wake)
        """Has the event loop store the steps of this iteration in its next one."""
        self._is_brief = False
        """Whether the thread commits or makes a checkpoint, which does not take long."""
        self._receipts = PendingReceipts(monotonic)
        self.follower = Follower(monotonic)
        """What makes the index of texts follow the logs."""

    # --- what comes next

    @property
    def pause(self) -> float | None:
        """For how many seconds no receipt is due, and no text is to be indexed."""
        if self._mode.is_checkpoint_due:
            return 0.0
        waits = [each.remaining for each in (self._receipts, self.follower) if each]
        return max(min(waits), 0.0) if waits else None

    def do_due(self) -> None:
        """Store receipts that have waited long enough. In idle moments, make a checkpoint or index texts."""
        if self._receipts and self._receipts.remaining <= 0:
            self.flush()
        elif self._mode.is_checkpoint_due:
            self._checkpoint()
        elif self.follower and self.follower.remaining <= 0:
            self._index()

    def handle(self, item: Any) -> None:
        """Store a step with all that wait behind it, keep a receipt, or do a job."""
        if isinstance(item, Receipt):
            self._receipts.add(item)
        elif isinstance(item, Append):
            with self._briefly():
                self._store(self._batch(item))
        else:
            self._set_for_thread()
            self.inline.disturb()
            self._do(item)
        self.follower.postpone()

    def _do(self, job: Job) -> None:
        """Do a job. What it may have stored is not acknowledged if the files are gone."""
        super().handle(job)
        if job.error is None:
            try:
                self._check_files()
            except FileGone as gone:
                job.error = gone

    def open(self, opening: Opening) -> None:
        """Open the connection, or leave nothing open."""
        super().open(opening)
        self._is_open = True
        self._driver = transaction.driver_of(self.connection)
        self._files = None if self._path is None else OpenFiles(self.name, self._path, self._monotonic)
        self._commits = Commits(self._driver, self._receipts, self.inline, self._monotonic, self._check_files)

    def _check_files(self) -> None:
        """Raise `FileGone` if the files of the database are no longer where they were opened."""
        if self._files is not None:
            self._files.check()

    def close(self) -> None:
        """Store the receipts that still wait, if the disk takes them, remove the traces of what was deleted, and close
        the connection. Raises `FileGone` behind that if the files are gone and nobody was told before."""
        self.flush()
        gone: FileGone | None = None
        if self._is_open:
            self._is_open = False
            gone = self._finish()
        super().close()
        if gone is not None:
            raise gone

    def _finish(self) -> FileGone | None:
        """Do what is to be done at rest. Returns why it cannot be done, if nobody was told before."""
        files, self._files = self._files, None
        if files is not None:
            was_known = files.are_gone
            try:
                files.check_now()
            except FileGone as gone:
                return None if was_known else gone
        self._set_for_thread()
        erasure.complete(self.connection, self.name)
        return None

    def _batch(self, first: Append) -> list[Append]:
        """Return the steps that wait, up to the first item of another kind. A second step of a conversation is left for
        the next commit, because its link depends on the first."""
        batch = {first.position.head.key: first}
        items = self.queue.items
        while self._take_receipts():
            item = items[0]
            if not isinstance(item, Append) or item.position.head.key in batch:
                break
            batch[item.position.head.key] = items.popleft()
        return list(batch.values())

    def _set_for_thread(self) -> None:
        """Let the connection wait for other programs and for checkpoints, as it may in the writing thread."""
        if not self._mode.is_for_thread:
            self._mode.set_for_thread(self._driver)

    def _take_receipts(self) -> bool:
        """Take the receipts that are next in the queue. Returns whether anything is left."""
        items = self.queue.items
        while items and isinstance(items[0], Receipt):
            self._receipts.add(items.popleft())
        return bool(items)

    # --- steps

    def commit_inline(self, step: Append) -> bool:
        """Store a step in the caller's thread, if that is worth it and possible at once. Returns whether it is stored.

        A step that was not stored is to be handed in, also one whose commit failed. Raises `StoreConflict` if the step
        does not follow the newest one.
        """
        if not self.inline.allow(step.position.head.key) or not self._lock_soon():
            return False
        try:
            if self._take_receipts():
                return False
            step.link()
            return self._commit_now((step,))
        finally:
            self.lock.release()

    @contextmanager
    def _briefly(self) -> Iterator[None]:
        """While this lasts, the event loop waits for the thread."""
        self._is_brief = True
        try:
            yield
        finally:
            self._is_brief = False

    def _lock_soon(self) -> bool:
        """Take the lock for an inline commit. Returns False if the thread holds it longer than a quick disk takes."""
        is_taken = self.lock.acquire(timeout=LONGEST if self._is_brief else 0)
        if not is_taken:
            self.inline.disturb()
        return is_taken

    def hand_in(self, append: Append) -> None:
        """Have a step stored with those that are handed in during the same iteration of the event loop. To be called in
        the event loop."""
        self.queue.items.append(append)
        self._gathering.ask()

    def _store_gathered(self) -> None:
        is_done = False
        try:
            is_done = self.inline.is_worthwhile and self.commit_queued()
        finally:
            if not is_done:
                self._wake()

    def _wake(self) -> None:
        """Have the thread look whether there is something to do."""
        self.queue.wake()

    def commit_queued(self) -> bool:
        """Store the steps at the head of the queue in the caller's thread, if that is possible at once. Returns whether
        the queue is empty then; otherwise the thread is to go on, also if a KeyboardInterrupt is raised here. To be
        called in an event loop."""
        items, results = self.queue.items, list[Append]()
        if not self._lock_soon():
            return False
        try:
            while self._take_receipts() and isinstance(items[0], Append):
                batch = self._batch(items.popleft())
                try:
                    self._commit_now(self._linked(batch))
                finally:
                    left = [step for step in batch if not step.is_settled]
                    items.extendleft(reversed(left))
                    results += [step for step in batch if step.is_settled]
                if left:
                    break
        finally:
            self.lock.release()
            PendingResult.report(results, asyncio.get_running_loop())
        return not items

    def _commit_now(self, steps: Sequence[Append]) -> bool:
        """Store linked steps without waiting for anything but the disk. Returns whether that succeeded."""
        try:
            self._mode.set_inline(self._driver)
            self._commits.commit(steps)
        except Exception:
            return False  # whatever it was, the thread tries again and tells the caller
        had_nothing_to_do = not self.follower
        for step in steps:
            self._mode.count(step.encoded)
            self.follower.note(step.before.key)
        self.follower.postpone()
        if self._mode.is_checkpoint_due or (had_nothing_to_do and self.follower):
            self._wake()
        return True

    @staticmethod
    def _linked(batch: Sequence[Append]) -> list[Append]:
        """Link the steps of a batch, and return those that follow the newest ones. The results of the others are
        conflicts."""
        steps: list[Append] = []
        for step in batch:
            try:
                step.link()
            except StoreConflict as conflict:
                step.error = conflict
            else:
                steps.append(step)
        return steps

    def _store(self, batch: list[Append]) -> None:
        self._set_for_thread()
        steps = self._linked(batch)
        for step, error in zip(steps, self._commits.commit_each(steps), strict=True):
            if error is None:
                self.follower.note(step.before.key)
            else:
                step.error = as_storage_failure(self.name, error)
        self.finish(batch)

    # --- receipts

    def flush(self) -> None:
        """Store the receipts. If the disk does not take them they are tried again later."""
        if not self._receipts:
            return
        self._set_for_thread()
        try:
            with transaction.writing(self._driver):
                self._receipts.write(self._driver)
        except Exception as error:
            failure = as_storage_failure(self.name, error)
            logger.warning("The receipts of deliveries could not be stored and are kept: %s", failure)
            self._receipts.retry_later()
        else:
            self._receipts.clear()

    # --- in idle moments

    def _checkpoint(self) -> None:
        """Make a checkpoint. If it fails, a later commit makes one; what was committed is safe in the log."""
        try:
            with self._briefly():
                self._mode.checkpoint(self._driver)
        except sqlite3.Error as error:
            logger.warning("The write-ahead log could not be merged: %s", as_storage_failure(self.name, error))

    def _index(self) -> None:
        """Index some texts. If that fails the index is behind until somebody searches, who is told why."""
        self._set_for_thread()
        try:
            self.follower.follow(self.connection)
        except Exception as error:
            logger.warning("What was said could not be indexed: %s", as_storage_failure(self.name, error))
            self.follower.forget()
