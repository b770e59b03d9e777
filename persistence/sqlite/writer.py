"""The thread that writes: steps that wait at the same time are committed together.

The steps that arrive during one commit are the batch of the next one. Receipts of deliveries are stored with a commit,
or in a commit of their own when they have waited long enough.

Where `InlineCommits` finds that it pays, the thread of the event loop commits what it hands in by itself. Such a commit
waits for nothing but the disk: if another program holds the file, or anything else fails, the steps go to the writing
thread, which tries again, may wait, and finds out what became of a commit in doubt. Checkpoints, which copy the
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...states.values.acts import MemoryScope
from ..codec import EncodedStep
from ..errors import FileGone, StoreConflict
from ..sql import writing
from ..sql.pending import PendingResult
from ..sql.writing import Append, OutboxKey, Postponement
from . import erasure, file
from .file import OpenFiles, as_storage_failure, is_locked
from .indexing import Follower
from .thread import ConnectionThread, Job, Opening, Worker

logger: logging.Logger = logging.getLogger("turnwise.store")


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
        self.inline: InlineCommits = InlineCommits(always=in_memory)
        """Decides which steps are committed by the thread that hands them in."""
        self._gathering = Gathering(self._store_gathered, self._wake)
        """Has the event loop store the steps of this iteration in its next one."""
        self._is_brief = False
        """Whether the thread commits or makes a checkpoint, which does not take long."""
        self._receipts = _PendingReceipts(monotonic)
        self.follower: Follower = Follower(monotonic)
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
        self._driver = file.driver_of(self.connection)
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
        batch = {first.position.key: first}
        items = self.queue.items
        while self._take_receipts():
            item = items[0]
            if not isinstance(item, Append) or item.position.key in batch:
                break
            batch[item.position.key] = items.popleft()
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
        if not self.inline.allow(step.position.key) or not self._lock_soon():
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
            self.follower.note(step.position.key)
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
                self.follower.note(step.position.key)
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
            with file.writing(self._driver):
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


LONGEST_LOG = 1000
"""The pages that inline commits may add to the write-ahead log before the thread makes a checkpoint. Chosen as long as
SQLite's own limit."""

_PAGE_SIZE = 4096
"""The size of a page, in bytes: the default of SQLite."""

_PAGES_OF_A_STEP = 5
"""The pages that a step writes besides those that are filled with texts: the head row, the row of the step, and their
indexes."""


class CommitMode:
    """How the connection that writes is set, and how much inline commits have added to the write-ahead log. The
    connection waits at first. A database in memory has nothing to wait for and no log.

    It decides what a commit may wait for: in the writing thread for another program and a checkpoint, inline for
    nothing but the disk. SQLite makes a checkpoint within the commit that finds the write-ahead log long, which takes
    as long as dozens of commits. It also waits up to the busy timeout for a lock. Both are switched off while steps are
    committed inline, and on again when the thread writes. They are switched only when that changes, because each switch
    costs as much as a statement of a step.
    """

    __slots__ = ("_busy_timeout", "_has_log", "_pages")

    def __init__(self, *, has_log: bool) -> None:
        self._has_log = has_log
        self._busy_timeout: int | None = None
        """In milliseconds, what is to be set when the thread writes again; None if it is set."""
        self._pages = 0

    @property
    def is_for_thread(self) -> bool:
        """Whether the connection is set for the writing thread."""
        return self._busy_timeout is None

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether inline commits have made the log so long that the thread should make a checkpoint."""
        return self._pages >= LONGEST_LOG

    def set_inline(self, driver: sqlite3.Connection) -> None:
        """Set the connection for an inline commit."""
        if self._has_log and self._busy_timeout is None:
            (self._busy_timeout,) = driver.execute("PRAGMA busy_timeout").fetchone()
            driver.execute("PRAGMA busy_timeout = 0")
            driver.execute("PRAGMA wal_autocheckpoint = 0")

    def set_for_thread(self, driver: sqlite3.Connection) -> None:
        """Set the connection for the writing thread."""
        with suppress(sqlite3.Error):  # what is committed then is as safe, and the next time tries again
            driver.execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
            driver.execute(f"PRAGMA busy_timeout = {self._busy_timeout}")
            self._busy_timeout = None

    def count(self, step: EncodedStep) -> None:
        """Note that a step was committed inline. An estimate of its pages is enough."""
        if self._has_log:
            self._pages += _PAGES_OF_A_STEP + step.size // _PAGE_SIZE

    def checkpoint(self, driver: sqlite3.Connection) -> None:
        """Copy the write-ahead log into the file, so that it is written from its beginning again."""
        self._pages = 0
        driver.execute("PRAGMA wal_checkpoint(PASSIVE)")


class _MovedOn(Exception):
    """A conversation is not at the step that a new step follows."""


class Commits:
    """Commits steps, together with the `receipts` that wait. Only the holder of the writer's lock uses it. `inline` is
    told how long each batch took, and `check_files` raises `FileGone`.

    A commit waits for the disk, and waits as long for one step as for a hundred. So a batch is one transaction, with
    one statement for each table. Batches change the speed only: one that cannot be stored is rolled back, and its steps
    are stored one by one, so that only a step that is in conflict, or too large for the disk, fails.

    A disk that reports a failed commit may have stored it. Such a step is in doubt, until the next attempt to store it
    finds out.
    """

    __slots__ = ("_check_files", "_driver", "_inline", "_monotonic", "_receipts")

    def __init__(
        self,
        driver: sqlite3.Connection,
        receipts: _PendingReceipts,
        inline: InlineCommits,
        monotonic: Callable[[], float],
        check_files: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._receipts = receipts
        self._inline = inline
        self._monotonic = monotonic
        self._check_files = check_files

    def commit(self, steps: Sequence[Append], *, in_thread: bool = False) -> None:
        """Commit linked steps of different conversations, all or none, and note that they are stored. Raises `_MovedOn`
        if one of them does not follow the newest step of its conversation, and what the driver raises."""
        if not steps:
            return
        self._check_files()
        begun = self._monotonic()
        try:
            with file.writing(self._driver):
                if not writing.advance(self._driver, steps):
                    raise _MovedOn
                if self._receipts:
                    self._receipts.write(self._driver)
            for step in steps:
                step.note_stored()
        except BaseException as error:  # a KeyboardInterrupt may come behind the commit, too
            for step in steps:
                if not step.is_stored:
                    _note_doubt(error, step)
            raise
        self._receipts.clear()
        self._inline.measured(self._monotonic() - begun, len(steps), at_most=in_thread)

    def commit_each(self, steps: Sequence[Append]) -> list[Exception | None]:
        """Commit linked steps of different conversations in the writing thread, all together if possible. Returns for
        each of them why it could not be stored, or None."""
        try:
            self.commit(steps, in_thread=True)
            return [None] * len(steps)
        except Exception as error:
            errors: list[Exception | None] = []
            locked = error if is_locked(error) else None
            for step in steps:
                failed = locked or self._commit_alone(step)
                locked = failed if failed is not None and is_locked(failed) else None
                errors.append(failed)
            return errors

    def _commit_alone(self, step: Append) -> Exception | None:
        """Store one step. If an earlier attempt is in doubt, find out whether it did store the step."""
        try:
            self._check_files()
            with file.writing(self._driver):
                stored = writing.advance(self._driver, [step])
                if not stored and step.position.in_doubt == step.chain:
                    stored = writing.write_again(self._driver, step)
        except sqlite3.IntegrityError as error:
            conflict = StoreConflict("The request, or the answer to the effect, is already in the log.")
            conflict.__cause__ = error
            return conflict
        except Exception as error:
            _note_doubt(error, step)
            return error
        if not stored:
            return StoreConflict("The conversation has moved on, or was deleted, since it was loaded.")
        step.note_stored()
        return None


def _note_doubt(error: BaseException, step: Append) -> None:
    """Note that the step is in doubt, if the disk may have stored a transaction that failed with this error."""
    if not (isinstance(error, _MovedOn | FileGone | sqlite3.IntegrityError) or is_locked(error)):
        step.position.in_doubt = step.chain


class Gathering:
    """Calls `collect` once in the next iteration of the event loop that asks for it, however often it asks until then.

    An event loop that is closed drops the calls that it was to make. Then `abandon` is called instead, so that somebody
    else can do the work.
    """

    __slots__ = ("_abandon", "_collect", "_loop")

    def __init__(self, collect: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._collect = collect
        self._abandon = abandon
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self) -> None:
        """Have `collect` called in the next iteration. To be called in an event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(_Call(self._run, self._drop))

    def _run(self) -> None:
        self._loop = None
        self._collect()

    def _drop(self) -> None:
        self._loop = None
        self._abandon()


class _Call:
    """A call that an event loop is to make: it does `run`, or `drop` if the event loop has dropped it."""

    __slots__ = ("_drop", "_run", "_was_made")

    def __init__(self, run: Callable[[], None], drop: Callable[[], None]) -> None:
        self._run = run
        self._drop = drop
        self._was_made = False

    def __call__(self) -> None:
        self._was_made = True
        self._run()

    def __del__(self) -> None:
        if not self._was_made:
            self._drop()


LONE = 4
"""How many steps in a row a conversation hands in before its steps are committed at once. Chosen as long as a turn with
one tool, so that conversations that take turns share their commits."""

LONGEST = 0.002
"""The mean wait for the disk, in seconds, up to which it counts as quick. Chosen as a quarter of the time for which a
model client holds up the event loop for one request."""

WORK = 0.000_05
"""Seconds of a commit that each step adds as work of the processor, which is no wait for the disk."""

TRIED_AFTER = 4
"""After how many commits in the thread that prove nothing one is made inline. Few, because a quick disk is left unused
until then."""

_LATEST = 4096
"""After so many at the latest, however many tries were in vain. So many that a slow disk hardly holds up the loop."""

_WEIGHT = 1 / 8
"""The share of the newest commit in the mean. One slow commit counts no more after ten to twenty quick ones."""


class InlineCommits:
    """Which conversation hands in steps, and how long their commits take. With `always`, each is committed at once.

    It decides which steps are committed on the event loop's own thread. To hand a step to the writing thread and to
    come back takes two changes of threads, and while both threads run Python they wait for each other's turn at the
    interpreter. On a quick disk that costs more than the commit itself: 100 conversations at once took 2.0 ms of
    processor time a turn through the thread, and 1.4 ms without it. Where the disk is slow, the event loop must not
    wait for it.

    So where recent commits were quick, the event loop's thread makes them. A step of a conversation that has had the
    store to itself for a while is committed at once, within the call that hands it in. The steps of many conversations
    are gathered during one iteration of the event loop and committed together, because a commit waits as long for one
    step as for a hundred. A database in memory has no disk to wait for.

    How long a commit took in the writing thread says little while the event loop is busy: the thread waits for the
    interpreter lock after each statement, which takes longer than a quick disk. Such a commit proves nothing. After a
    few of them, one is made inline to find out. If that was slow, the next one is tried after twice as many.
    """

    __slots__ = ("_always", "_conversation", "_in_a_row", "_mean", "_tried_after", "_undisturbed", "_unproven")

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self._conversation: int | None = None
        self._in_a_row = 0
        self._undisturbed = 0
        """How many steps were handed in since the thread did something else."""
        self._mean: float | None = None
        self._unproven = 0
        """How many commits in a row have proved nothing."""
        self._tried_after = TRIED_AFTER

    def allow(self, conversation: int) -> bool:
        """Note that a step of this conversation is handed in. Returns whether it may be committed at once."""
        if conversation != self._conversation:
            self._conversation, self._in_a_row = conversation, 0
        self._in_a_row += 1
        self._undisturbed += 1
        return self._always or (self._in_a_row > LONE and self.is_worthwhile)

    @property
    def is_worthwhile(self) -> bool:
        """Whether the event loop may commit what it gathers: recent commits were quick, or nothing is known of them for
        long, and the thread is left alone.

        The connection is set for one thread or the other (`CommitMode`), which costs as much as a commit.
        """
        is_quick = self._mean is not None and self._mean <= LONGEST
        return self._undisturbed > LONE and (is_quick or self._is_tried)

    @property
    def _is_tried(self) -> bool:
        return self._unproven >= self._tried_after

    def disturb(self) -> None:
        """Note that the thread does something else than to store steps."""
        self._undisturbed = 0

    def measured(self, seconds: float, steps: int, *, at_most: bool = False) -> None:
        """Note how long a commit of so many steps took. `at_most`: in the thread, which may have waited for the
        interpreter lock as well."""
        wait = max(seconds - steps * WORK, 0.0)
        if at_most and wait > LONGEST:
            self._unproven += 1
            return
        if self._is_tried:
            self._tried_after = TRIED_AFTER if wait <= LONGEST else min(2 * self._tried_after, _LATEST)
            self._mean = None
        self._unproven = 0
        mean = wait if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (wait - mean)


LONGEST_DELAY = 0.05
"""Seconds that a receipt waits for a commit to join. Chosen so that a crash rarely repeats a delivery."""

RETRY_DELAY = 1.0
"""Seconds between attempts to store receipts that the disk did not take. Chosen so that a full disk gets some rest."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a delivery: it arrived, or an attempt failed."""

    key: OutboxKey
    postponement: Postponement | None = None


class _PendingReceipts:
    """The receipts that are not stored yet, one for each delivery. True if there are any.

    Nobody waits for a receipt: if one is lost, a delivery is made once more, which is all that can happen. So receipts
    are stored with the next commit. If none comes for a while they are stored in a commit of their own, and they are
    kept if the disk fails.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._postponements: dict[OutboxKey, Postponement | None] = {}
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._postponements)

    @property
    def remaining(self) -> float:
        """For how many seconds they may still wait for a commit to join; zero or less if they are due."""
        return self._due - self._monotonic()

    def add(self, receipt: Receipt) -> None:
        """Keep a receipt. It replaces an older one of the same delivery, unless that one says that it has arrived."""
        if not self._postponements:
            self._due = self._monotonic() + LONGEST_DELAY
        has_arrived = self._postponements.get(receipt.key, receipt.postponement) is None
        self._postponements[receipt.key] = None if has_arrived else receipt.postponement

    def write(self, driver: sqlite3.Connection) -> None:
        """Write the receipts within the transaction of the caller, who must `clear` them after its commit."""
        writing.note(driver, self._postponements.items())

    def clear(self) -> None:
        """Forget the receipts, because they are stored."""
        self._postponements.clear()

    def retry_later(self) -> None:
        """Try again after `RETRY_DELAY`, because the disk did not take them."""
        self._due = self._monotonic() + RETRY_DELAY
