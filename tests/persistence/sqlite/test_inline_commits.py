"""A step of a conversation that has the store to itself is committed at once, where the disk is quick."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.records import Outgoing
from turnwise.persistence.sql.writing import Append
from turnwise.persistence.sqlite import file, indexing, writer
from turnwise.persistence.sqlite.database import Database, open_for_reading, open_for_writing
from turnwise.persistence.sqlite.file import Address, driver_of
from turnwise.persistence.sqlite.store import SqliteLog, SqliteStore
from turnwise.persistence.sqlite.thread import ConnectionThread, Worker, WorkQueue
from turnwise.persistence.sqlite.writer import (
    LONE,
    LONGEST,
    TRIED_AFTER,
    WORK,
    CommitMode,
    InlineCommits,
    Writer,
    WritingThread,
)
from turnwise.states import LlmResponse, StoreError
from turnwise.states.values.acts import MemoryQuery, MemoryScope

from ...support.store_internals import NAMES, query, statements_of, without_repeats
from ...support.walks import Walk

BUSY_TIMEOUT = 5.0
PATIENCE = 30
"""Seconds to wait for another thread: far more than it takes."""


class Clock:
    """A clock that a test sets. Nothing takes time by it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the writer."""
    return Clock()


class Gate(WorkQueue):
    """The queue of the writing thread, which may be kept from looking into it. A thread that was woken in vain looks at
    any later moment, and would store what it finds instead of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._is_open = threading.Event()
        self._is_open.set()
        self._is_waited_at = threading.Event()

    def wait(self, timeout: float | None) -> None:
        """Wait until the gate is open, and then for an item."""
        if not self._is_open.is_set():
            self._is_waited_at.set()
            assert self._is_open.wait(PATIENCE)
        super().wait(timeout)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let the thread wait while this lasts."""
        self._is_open.clear()
        self.wake()
        assert self._is_waited_at.wait(PATIENCE)
        try:
            yield
        finally:
            self._is_open.set()


class QuickStore(SqliteStore):
    """A store whose disk is quick."""

    def __init__(self, database: Database, queue: Gate) -> None:
        super().__init__(database)
        self.queue = queue


@pytest.fixture
async def store(database: Path, clock: Clock) -> AsyncIterator[QuickStore]:
    """A database in a file, whose disk is quick by the clock of the test."""
    store = await opened(database, clock)
    yield store
    await store.close()


async def opened(database: Path, clock: Clock) -> QuickStore:
    """Open the database in this file."""
    address, worker = Address.of(database), Writer(Address.of(database).name, clock)
    worker.queue = queue = Gate()
    writer = WritingThread(worker)
    await writer.open(partial(open_for_writing, address, BUSY_TIMEOUT))
    reader = ConnectionThread(Worker(address.name))
    await reader.open(partial(open_for_reading, address, BUSY_TIMEOUT))
    return QuickStore(Database(address, reader, writer), queue)


class Talk:
    """A conversation that had the store to itself, and the steps that come next."""

    def __init__(self, log: SqliteLog, walk: Walk) -> None:
        self.log = log
        self.walk = walk

    @classmethod
    async def alone(cls, store: SqliteStore, name: str = "walk") -> Talk:
        """Begin a conversation, and store so many steps that the next one is inline."""
        talk = cls(await Walk(name).into(store, name), Walk(name))
        await talk.settle()
        return talk

    async def settle(self) -> None:
        """Store so many steps that the next one is inline, whatever the thread did before."""
        for _ in range(LONE):
            await self.append()

    def append(self, *targets: Outgoing) -> Any:
        """The coroutine that stores the next step: a message, or its answer."""
        walk = self.walk
        walk = walk.say() if len(walk.steps) % 2 else walk.answer(LlmResponse, content="Sakura has one.")
        return self.log.append(*walk.steps[-1], targets)

    async def matches(self, store: SqliteStore) -> bool:
        """Whether the store holds the steps that were appended, and the state after them."""
        entries = await store.entries(self.walk.name)
        state = (await store.load(self.walk.name)).state
        report = await replay_conversation(store, self.walk.name)
        stored = [entry.event for entry in entries] == [event for event, _ in self.walk.steps]
        return stored and state == self.walk.state and report.divergence is None


def ends_at_once(append: Any) -> bool:
    """Whether a coroutine ends without suspending. One that does not is dropped; what it handed in is stored."""
    try:
        append.send(None)
    except StopIteration:
        return True
    append.close()
    return False


class TestTheDecision:
    """Alone, and on a quick disk."""

    def test_a_conversation_that_is_alone_for_a_turn_is_inline(self) -> None:
        """And no longer when another one comes."""
        inline = InlineCommits()
        inline.measured(LONGEST / 2, 1)

        alone = [inline.allow(1) for _ in range(LONE + 2)]
        other = [inline.allow(2), inline.allow(1)]

        assert alone == [False] * LONE + [True, True]
        assert other == [False, False]

    def test_a_crowd_is_never_inline(self) -> None:
        """Its steps are stored together by the thread."""
        inline = InlineCommits()
        inline.measured(0.0, 1)

        assert not any(inline.allow(number % 3) for number in range(30))

    def test_an_unknown_disk_is_not_quick(self) -> None:
        """Until the thread has committed something."""
        inline = InlineCommits()

        assert not any(inline.allow(1) for _ in range(2 * LONE))

    def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick(self) -> None:
        """One slow commit among quick ones is a hiccup; a few of them are a slow disk, which may recover."""
        inline = InlineCommits()
        for _ in range(2 * LONE):
            inline.measured(LONGEST / 10, 1)
            inline.allow(1)
        allowed = []
        for seconds in [LONGEST * 2] + [LONGEST * 10] * 3 + [LONGEST / 10] * 30:
            inline.measured(seconds, 1)
            allowed.append(inline.allow(1))

        assert allowed[:4] == [True, False, False, False]
        assert allowed[-1]

    def test_a_large_batch_may_take_longer(self) -> None:
        """The work of its steps is no wait for the disk."""
        inline = InlineCommits()
        for number in range(2 * LONE):
            inline.allow(number)
        inline.measured(LONGEST + 99 * WORK, 100)
        quick = inline.is_worthwhile
        for _ in range(10):
            inline.measured(LONGEST + 199 * WORK, 100)

        assert (quick, inline.is_worthwhile) == (True, False)

    def test_a_long_commit_in_the_thread_proves_nothing(self) -> None:
        """The thread may have waited for the interpreter lock. After a few, one is tried inline; while that is slow,
        ever more lie between two tries, and once it is quick, all are inline."""
        inline, tried = InlineCommits(), list[int]()
        for _ in range(2 * LONE):
            inline.allow(1)
        for number in range(15 * TRIED_AFTER):
            if inline.is_worthwhile:
                tried.append(number)
                inline.measured(LONGEST * 10, 1)
            else:
                inline.measured(LONGEST * 10, 1, at_most=True)
        while not inline.is_worthwhile:
            inline.measured(LONGEST * 10, 1, at_most=True)
        inline.measured(LONGEST / 10, 1)
        inline.measured(LONGEST * 10, 1, at_most=True)

        assert tried == [4, 13, 30]
        assert inline.is_worthwhile

    def test_other_work_of_the_thread_goes_first(self) -> None:
        """The connection is not set back and forth for every step."""
        inline = InlineCommits()
        inline.measured(0.0, 1)
        before = [inline.allow(1) for _ in range(LONE + 1)]
        inline.disturb()
        after = [inline.allow(1) for _ in range(LONE + 1)]

        assert before == after == [False] * LONE + [True]

    def test_a_memory_has_no_disk(self) -> None:
        """Every step is inline."""
        inline = InlineCommits(always=True)

        assert all(inline.allow(number) for number in range(10))


class TestACommit:
    """It is the same commit in another thread."""

    async def test_does_not_suspend(self, store: SqliteStore) -> None:
        """The caller goes on with the step stored, and nothing was scheduled."""
        talk = await Talk.alone(store)

        ended = [ends_at_once(talk.append()) for _ in range(5)]

        assert ended == [True] * 5
        assert talk.log.seq == LONE + 6
        assert await talk.matches(store)

    async def test_of_a_memory_does_not_suspend(self) -> None:
        """From the first step on, whoever else writes."""
        store = await SqliteStore.open(":memory:")
        talks = [Talk(await Walk(name).into(store, name), Walk(name)) for name in ("one", "two")]

        ended = [ends_at_once(talk.append()) for _ in range(3) for talk in talks]

        assert ended == [True] * 6
        assert [await talk.matches(store) for talk in talks] == [True, True]
        await store.close()

    async def test_is_the_same_statements(self, store: SqliteStore) -> None:
        """In the thread of the caller, behind those by which the connection stops waiting."""
        talk = await Talk.alone(store)
        words = await statements_of(store)
        await talk.settle()
        words.clear()

        await talk.append()
        await talk.append(Outgoing(2, "screen"))

        stops_waiting = ["PRAGMA busy_timeout", "PRAGMA busy_timeout =", "PRAGMA wal_autocheckpoint ="]
        step = ["BEGIN IMMEDIATE", "UPDATE conversations", "INSERT INTO events"]
        assert without_repeats(words) == [*stops_waiting, *step, "COMMIT", *step, "INSERT INTO outbox", "COMMIT"]

    async def test_waits_its_turn_behind_other_work(self, store: SqliteStore) -> None:
        """While the thread works, or has something to do, steps are handed in and keep their order."""
        talk = await Talk.alone(store)
        free = threading.Event()
        busy = asyncio.ensure_future(store.database.writing.run(lambda _: free.wait()))
        await asyncio.sleep(0)

        first, second = (asyncio.ensure_future(talk.append()) for _ in range(2))
        await asyncio.sleep(0)
        assert not first.done()
        free.set()
        await asyncio.gather(busy, first, second)

        assert await talk.matches(store)

    async def test_of_a_step_that_does_not_follow_is_a_conflict(self, store: SqliteStore) -> None:
        """Also where somebody else has moved the conversation."""
        talk = await Talk.alone(store)
        other = (await store.load("walk")).log
        stale = talk.walk.steps[-1]
        await talk.append()
        step = talk.walk.steps[-1]

        with pytest.raises(StoreConflict):
            await talk.log.append(*stale)
        with pytest.raises(StoreConflict):
            await other.append(*step)

        assert await talk.matches(store)

    async def test_takes_receipts_along(self, store: SqliteStore) -> None:
        """Those that were handed in before are stored with it, and the queue is no reason to wait."""
        talk = await Talk.alone(store)
        await talk.append(Outgoing(2, "screen"))
        before = await store.outbox(["walk"])

        words = await statements_of(store)
        await talk.settle()
        words.clear()
        talk.log.acknowledge(2, "screen")
        await talk.append()

        assert [row.target for row in before] == ["screen"]
        assert (words.count("BEGIN IMMEDIATE"), words.count("DELETE FROM outbox")) == (1, 1)
        assert await store.outbox(["walk"]) == ()

    async def test_is_refused_by_a_store_that_is_closed(self, database: Path) -> None:
        """As everything else is. The write-ahead log is gone by then."""
        store = await SqliteStore.open(database)
        talk = await Talk.alone(store)
        await store.close()

        with pytest.raises(StoreError):
            await talk.append()

        assert [path.name for path in database.parent.glob("*-wal")] == []


class TestStepsOfManyConversations:
    """What is handed in during one iteration of the event loop is one commit, in its thread."""

    async def test_are_stored_together_by_their_own_thread(self, store: QuickStore) -> None:
        """One transaction, and the writing thread sleeps on."""
        talks = [await Talk.alone(store, name) for name in NAMES]
        committed: list[threading.Thread] = []

        def note(statement: str) -> None:
            if statement == "COMMIT":
                committed.append(threading.current_thread())

        await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
        await talks[0].settle()
        committed.clear()
        with store.queue.closed():
            await asyncio.gather(*(talk.append() for talk in reversed(talks)))

        assert committed == [threading.current_thread()]
        assert [await talk.matches(store) for talk in talks] == [True] * len(talks)

    async def test_resume_their_callers_without_waking_the_loop(
        self, store: QuickStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A loop that stores steps itself is awake."""
        talks = [await Talk.alone(store, name) for name in NAMES]
        await talks[0].settle()
        loop, woken = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *call, **rest: (woken.append(call), wake(*call, **rest))
        )

        with store.queue.closed():
            await asyncio.gather(*(talk.append() for talk in reversed(talks)))

        assert woken == []

    async def test_of_which_one_lost_its_race_are_stored_without_it(self, store: SqliteStore) -> None:
        """The thread finds out which one."""
        talks = [await Talk.alone(store, name) for name in NAMES]
        ahead = (await store.load(NAMES[3])).log
        await ahead.append(*talks[3].walk.say("first").steps.pop())
        talks[3].walk.say("first")

        outcomes = await asyncio.gather(*(talk.append() for talk in talks), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]
        assert isinstance(outcomes[3], StoreConflict)

    @pytest.mark.parametrize("mishap", ["lied", "broken"])
    async def test_are_stored_once_though_a_commit_fails(
        self, mishap: str, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether the disk has stored them or not."""
        talks = [await Talk.alone(store, name) for name in NAMES]
        with monkeypatch.context() as patch:
            patch.setattr(file, "commit", fails_once({"lied": lied, "broken": broken}[mishap]))
            await asyncio.gather(*(talk.append() for talk in talks))

        assert [await talk.matches(store) for talk in talks] == [True] * len(talks)

    async def test_keep_their_order_among_other_work(self, store: SqliteStore) -> None:
        """A deletion that was handed in before a step is done before it."""
        talks = [await Talk.alone(store, name) for name in NAMES[:3]]

        outcomes = await asyncio.gather(
            talks[0].append(), store.delete(NAMES[1]), talks[1].append(), talks[2].append(), return_exceptions=True
        )

        assert [type(outcome) for outcome in outcomes] == [type(None), type(None), StoreConflict, type(None)]

    async def test_are_stored_though_nobody_waits_any_more(self, store: SqliteStore) -> None:
        """Callers that are cancelled before the commit."""
        talks = [await Talk.alone(store, name) for name in NAMES]
        tasks = [asyncio.ensure_future(talk.append()) for talk in talks]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert [await talk.matches(store) for talk in talks] == [True] * len(talks)

    @pytest.mark.slow
    @pytest.mark.parametrize("interrupted", ["before", "behind", "first", "third", "counting"])
    def test_are_stored_though_the_program_is_interrupted(
        self, interrupted: str, database: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A KeyboardInterrupt within the commit, directly behind it, or while the first or the third step is noted, or
        the first is counted. Callers of a loop that goes on are told."""
        with closing(asyncio.new_event_loop()) as loop:
            store = loop.run_until_complete(opened(database, clock))
            talks = [loop.run_until_complete(Talk.alone(store, name)) for name in NAMES]
            with monkeypatch.context() as patch:
                interrupt_once(patch, interrupted)
                appends = [loop.create_task(talk.append()) for talk in talks]
                with store.queue.closed(), pytest.raises(KeyboardInterrupt):
                    loop.run_until_complete(asyncio.wait(appends))
                done, waiting = loop.run_until_complete(asyncio.wait(appends, timeout=PATIENCE))

            assert (len(done), waiting) == (len(talks), set())
            assert all(append.exception() is None for append in appends)
            assert all(loop.run_until_complete(talk.matches(store)) for talk in talks)
            loop.run_until_complete(store.close())


def interrupt_once(patch: pytest.MonkeyPatch, moment: str) -> None:
    """Have a KeyboardInterrupt raised at this moment of the next commit of a batch."""
    place, name, before = {
        "before": (file, "commit", 0),
        "behind": (file, "commit", 0),
        "first": (Append, "note_stored", 0),
        "third": (Append, "note_stored", 2),
        "counting": (CommitMode, "count", 0),
    }[moment]
    calls, call = 0, getattr(place, name)

    def interrupted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls != before + 1:
            call(*arguments)
            return
        if moment == "behind":
            call(*arguments)
        raise KeyboardInterrupt

    patch.setattr(place, name, interrupted)


def lied(driver: sqlite3.Connection) -> None:
    """The disk stores it, and says that it failed."""
    driver.execute("COMMIT")
    raise sqlite3.OperationalError("disk I/O error")


def broken(driver: sqlite3.Connection) -> None:
    """The disk stores nothing, and says so."""
    raise sqlite3.OperationalError("disk I/O error")


def fails_once(fails: Callable[[sqlite3.Connection], None]) -> Callable[[sqlite3.Connection], None]:
    """A disk that fails like this once, and then is well."""
    failures = [fails]

    def commit(driver: sqlite3.Connection) -> None:
        (failures.pop() if failures else lambda driver: driver.execute("COMMIT"))(driver)

    return commit


class TestACommitThatFails:
    """The thread tries again, and waits if it must."""

    async def test_because_another_program_writes_is_handed_in(self, store: SqliteStore) -> None:
        """The caller suspends at once, and goes on when the other program is done."""
        talk = await Talk.alone(store)
        with closing(sqlite3.connect(store.database.name, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            append = asyncio.ensure_future(talk.append())
            await asyncio.sleep(0)
            assert not append.done()
            other.execute("COMMIT")

            await append

        assert await talk.matches(store)

    @pytest.mark.parametrize("fails", [lied, broken])
    async def test_once_has_not_failed(
        self, fails: Callable[[sqlite3.Connection], None], store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether the disk has stored it or not, it is stored once."""
        talk = await Talk.alone(store)
        with monkeypatch.context() as patch:
            patch.setattr(file, "commit", fails_once(fails))
            await talk.append()

        assert await talk.matches(store)

    @pytest.mark.parametrize("fails", [lied, broken])
    async def test_again_is_told_and_may_be_tried_again(
        self, fails: Callable[[sqlite3.Connection], None], store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The position stays where it was, and the same step is stored once."""
        talk = await Talk.alone(store)
        with monkeypatch.context() as patch:
            patch.setattr(file, "commit", fails)
            with pytest.raises(StorageFailed):
                await talk.append()
        seq = talk.log.seq
        await talk.log.append(*talk.walk.steps[-1])

        assert (seq, talk.log.seq) == (LONE + 1, LONE + 2)
        assert await talk.matches(store)


class TestTheThread:
    """What takes long, or must wait, stays in the thread."""

    async def test_makes_the_checkpoints(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """After so many inline commits that the write-ahead log has grown; the commits are the caller's."""
        monkeypatch.setattr(writer, "LONGEST_LOG", 50)
        talk, made, by = await Talk.alone(store), asyncio.Event(), set[tuple[str, bool]]()
        loop, here = asyncio.get_running_loop(), threading.current_thread()

        def note(statement: str) -> None:
            if statement == "COMMIT" or "wal_checkpoint" in statement:
                by.add((statement, threading.current_thread() is here))
            if "wal_checkpoint" in statement:
                loop.call_soon_threadsafe(made.set)

        await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
        await talk.settle()
        by.clear()
        for _ in range(10):
            await talk.append()
        await made.wait()

        assert by == {("COMMIT", True), ("PRAGMA wal_checkpoint(PASSIVE)", False)}

    async def test_is_waited_for_while_it_commits(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """A step that comes while the thread makes a checkpoint is committed behind it, by its own thread."""
        monkeypatch.setattr(writer, "LONGEST", PATIENCE)
        monkeypatch.setattr(writer, "LONGEST_LOG", 1)
        talk, begun, ended = await Talk.alone(store), threading.Event(), threading.Event()

        def note(statement: str) -> None:
            if "wal_checkpoint" in statement:
                begun.set()
                ended.wait(PATIENCE)

        await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
        await talk.settle()
        await talk.append()
        await asyncio.to_thread(begun.wait, PATIENCE)
        release = threading.Timer(0.01, ended.set)
        release.start()

        assert ends_at_once(talk.append())
        assert ended.is_set()
        assert await talk.matches(store)

    async def test_waits_for_others_as_before(self, store: SqliteStore) -> None:
        """Behind an inline commit its connection has the settings with which it was opened."""
        talk = await Talk.alone(store)
        before = [await query(store, f"PRAGMA {name}") for name in ("busy_timeout", "wal_autocheckpoint")]
        await talk.append()

        after = [await query(store, f"PRAGMA {name}") for name in ("busy_timeout", "wal_autocheckpoint")]

        assert before == after == [BUSY_TIMEOUT * 1000, 1000]

    async def test_indexes_what_was_committed_inline(
        self, store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Once somebody has searched, in a moment in which nothing else is to do."""
        monkeypatch.setattr(indexing, "IDLE", 0.01)
        talk, indexed = await Talk.alone(store), threading.Event()
        scope = MemoryScope("walk", None, 0)
        await store.search(MemoryQuery(scope, ("sakura",), None, None, 10))

        def note(statement: str) -> None:
            if "text_positions" in statement:
                indexed.set()

        await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
        await talk.append()
        clock.now = 1.0

        assert await asyncio.to_thread(indexed.wait, 60)
