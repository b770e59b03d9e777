"""Steps that come at the same time are stored together, and it makes no difference to any of them."""

from __future__ import annotations

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite import file
from turnwise.persistence.sqlite.file import driver_of
from turnwise.persistence.sqlite.store import SqliteLog, SqliteStore
from turnwise.persistence.sqlite.writer import Gathering
from turnwise.persistence.summaries import ConversationFilter, details_of, details_row
from turnwise.states import (
    CloseRequested,
    DetailsChanged,
    LlmResponse,
    ToolsChanged,
    UnknownConversation,
    UserMessage,
    pending,
)

from ...support.store_internals import NAMES, query, statements_of, together, without_repeats
from ...support.walks import NOON, Walk

# --- Steps that come at the same time are stored together, and it makes no difference but for the time that it takes.


async def logs_of(store: SqliteStore, *names: str) -> dict[str, SqliteLog]:
    """Conversations that were opened, and no more."""
    return {name: await Walk().into(store, name) for name in names}


def is_free(database: Path) -> bool:
    """Whether another program could write to the file now."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")
        return True


async def texts_of(store: SqliteStore, name: str) -> list[str]:
    """What was said in a conversation."""
    entries = await store.entries(name)
    return [entry.event.text for entry in entries if isinstance(entry.event, UserMessage)]


@contextmanager
def commits(monkeypatch: pytest.MonkeyPatch, commit: Callable[[sqlite3.Connection], None]) -> Iterator[None]:
    """Every step is committed like this."""
    with monkeypatch.context() as patch:
        patch.setattr(file, "commit", commit)
        yield


def lied(driver: sqlite3.Connection) -> None:
    """The disk stores it, and says that it failed."""
    driver.execute("COMMIT")
    raise sqlite3.OperationalError("disk I/O error")


def broken(driver: sqlite3.Connection) -> None:
    """The disk stores nothing, and says so."""
    raise sqlite3.OperationalError("disk I/O error")


class TestStepsThatWait:
    """Whatever waits when the thread is free is one transaction."""

    async def test_are_stored_by_one_statement_a_table(self, store: SqliteStore) -> None:
        """One commit for all of them, so one wait for the disk."""
        logs = await logs_of(store, *NAMES)
        words = await statements_of(store)

        await together(store, *(log.append(*Walk().say(name).steps[1]) for name, log in logs.items()))

        assert without_repeats(words) == [
            "BEGIN IMMEDIATE",
            "UPDATE conversations",
            "INSERT INTO events",
            "INSERT INTO details",
            "COMMIT",
        ]
        assert words.count("UPDATE conversations") == len(NAMES)
        assert [await texts_of(store, name) for name in NAMES] == [[name] for name in NAMES]

    async def test_of_which_one_lost_its_race_are_stored_without_it(self, store: SqliteStore) -> None:
        """The conversation of one has moved on: only that one is refused."""
        logs = await logs_of(store, *NAMES)
        await (await store.load(NAMES[4])).log.append(*Walk().say("first").steps[1])

        outcomes = await together(store, *(log.append(*Walk().say("then").steps[1]) for log in logs.values()))

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]
        assert isinstance(outcomes[4], StoreConflict)
        assert [await texts_of(store, name) for name in NAMES] == [
            ["first" if number == 4 else "then"] for number in range(10)
        ]

    async def test_of_which_one_is_in_the_log_already_are_stored_without_it(self, store: SqliteStore) -> None:
        """P3: a request that was taken before is refused alone."""
        walk = Walk().turn("tonight")
        logs = [await walk.into(store, name) for name in NAMES]
        again = Walk().turn("tonight").take(UserMessage(event_id="walk-2", at=NOON, text="again"))
        walk.say("And tomorrow?")
        steps = [again if number == 7 else walk for number in range(10)]

        outcomes = await together(store, *(log.append(*one.steps[-1]) for log, one in zip(logs, steps, strict=True)))

        assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [7]
        assert outcomes[7].sentence == "The request, or the answer to the effect, is already in the log."

    async def test_of_which_one_is_too_much_for_the_disk_are_stored_without_it(self, store: SqliteStore) -> None:
        """P28: the fault reaches the step that could not be stored, and no other."""
        logs = await logs_of(store, *NAMES)
        await query(store, f"PRAGMA max_page_count = {await query(store, 'PRAGMA page_count') + 20}")
        texts = {name: "x" * 200_000 if name == NAMES[2] else name for name in NAMES}

        outcomes = await together(store, *(log.append(*Walk().say(texts[name]).steps[1]) for name, log in logs.items()))
        await query(store, "PRAGMA max_page_count = 1000000")

        assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [2]
        assert isinstance(outcomes[2], StorageFailed)
        assert [log.seq for log in logs.values()] == [1 if number == 2 else 2 for number in range(10)]
        await logs[NAMES[2]].append(*Walk().say("less").steps[1])
        assert await texts_of(store, NAMES[2]) == ["less"]

    async def test_do_not_wait_one_by_one_for_a_lock(self, store: SqliteStore, database: Path) -> None:
        """Another program holds the file: the time to wait passes once for all of them."""
        logs = await logs_of(store, *NAMES)
        words = await statements_of(store)

        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            outcomes = await together(store, *(log.append(*Walk().say().steps[1]) for log in logs.values()))

        assert {type(outcome) for outcome in outcomes} == {StorageFailed}
        assert words == ["BEGIN IMMEDIATE"]
        assert await together(store, *(log.append(*Walk().say().steps[1]) for log in logs.values())) == [None] * 10

    async def test_of_one_conversation_are_stored_one_after_the_other(self, store: SqliteStore) -> None:
        """Nobody has to wait for a step before handing in the next one."""
        walk = Walk().turn("tonight").turn("tomorrow")
        log = await Walk().into(store)

        outcomes = await together(store, *(log.append(*step) for step in walk.steps[1:]))

        assert outcomes == [None] * 8
        assert log.seq == 9
        assert (await store.load("walk")).state == walk.state
        assert (await replay_conversation(store, "walk")).divergence is None

    async def test_fall_with_the_step_before_them(self, store: SqliteStore) -> None:
        """Where a step could not be stored, the one that follows it is not stored either."""
        walk = Walk().say("x" * 200_000).call("find_table")
        log = await Walk().into(store)
        await query(store, f"PRAGMA max_page_count = {await query(store, 'PRAGMA page_count') + 20}")

        outcomes = await together(store, *(log.append(*step) for step in walk.steps[1:]))

        assert [type(outcome) for outcome in outcomes] == [StorageFailed, StoreConflict]
        assert log.seq == 1

    async def test_are_not_taken_for_steps_of_a_conversation_that_took_the_place(self, store: SqliteStore) -> None:
        """A log that outlived its conversation is refused, though the next one has the same key in the tables."""
        walk = Walk().turn("tonight")
        old = await Walk().into(store, "old")
        await old.append(*walk.steps[1])
        await store.delete("old")
        logs = await logs_of(store, "new", "other")

        outcomes = await together(store, old.append(*walk.steps[2]), logs["other"].append(*walk.steps[1]))

        assert [type(outcome) for outcome in outcomes] == [StoreConflict, type(None)]
        assert [len(await store.entries(name)) for name in logs] == [1, 2]
        assert (await replay_conversation(store, "new")).divergence is None

    async def test_are_all_told_though_one_does_not_listen(self, store: SqliteStore) -> None:
        """A caller that is cancelled while its step waits keeps nobody else from hearing."""
        logs = await logs_of(store, *NAMES)
        tasks = {name: asyncio.ensure_future(log.append(*Walk().say().steps[1])) for name, log in logs.items()}

        async def cancel() -> None:
            tasks[NAMES[0]].cancel()

        outcomes = await together(store, *tasks.values(), cancel())

        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert outcomes[1:] == [None] * 10
        assert [log.seq for log in logs.values()] == [2] * 10

    async def test_keep_their_order_among_other_work(self, store: SqliteStore) -> None:
        """What was handed in before a deletion is stored before it, and what came after finds nothing."""
        walk = Walk().turn("tonight")
        log = await Walk().into(store)
        other = await Walk().into(store, "other")

        outcomes = await together(
            store,
            log.append(*walk.steps[1]),
            other.append(*walk.steps[1]),
            store.delete("walk"),
            log.append(*walk.steps[2]),
            other.append(*walk.steps[2]),
            store.delete("walk"),
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict, UnknownConversation]
        assert (log.seq, other.seq) == (2, 3)

    async def test_hear_each_of_its_own_fault(self, store: SqliteStore) -> None:
        """Something that no database can hold is the error of who handed it in."""
        logs = await logs_of(store, *NAMES[:3])
        event, step = Walk().say("hello").steps[1]
        monster = event.model_copy(update={"event_id": object()})

        outcomes = await together(
            store,
            logs[NAMES[0]].append(event, step),
            logs[NAMES[1]].append(monster, step),
            logs[NAMES[2]].append(event, step),
        )

        assert [outcome is None for outcome in outcomes] == [True, False, True]
        assert [log.seq for log in logs.values()] == [2, 1, 2]


class TestACommitThatFails:
    """P28: whatever the disk says, memory is equal to the store, and the conversation goes on."""

    async def test_and_stored_nothing_is_undone(
        self, store: SqliteStore, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The transaction is not left open: the next one, of any kind, begins as if nothing had been."""
        log = await Walk().into(store)
        with commits(monkeypatch, broken), pytest.raises(StorageFailed):
            await log.append(*Walk().say("hello").steps[1])

        assert is_free(database)
        assert log.seq == 1
        assert await texts_of(store, "walk") == []
        await Walk().into(store, "other")
        await log.append(*Walk().say("hello again").steps[1])
        assert await texts_of(store, "walk") == ["hello again"]

    async def test_but_stored_the_step_has_not_failed(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The disk complains once, behind a commit that came through: the step is found, and written through again."""
        logs = await logs_of(store, *NAMES)
        complaints = [lied]

        def once(driver: sqlite3.Connection) -> None:
            (complaints.pop() if complaints else lambda driver: driver.execute("COMMIT"))(driver)

        with commits(monkeypatch, once):
            outcomes = await together(store, *(log.append(*Walk().say(name).steps[1]) for name, log in logs.items()))

        assert outcomes == [None] * 10
        assert [log.seq for log in logs.values()] == [2] * 10
        for name in NAMES:
            assert await texts_of(store, name) == [name]
            assert (await replay_conversation(store, name)).divergence is None

    async def test_again_and_again_is_told_and_may_be_tried_again(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the disk cannot promise it, nobody is told that the step is stored; later it is, once."""
        walk = Walk().say("hello").call("find_table")
        log = await Walk().into(store)
        with commits(monkeypatch, lied), pytest.raises(StorageFailed):
            await log.append(*walk.steps[1])
        seq = log.seq

        await log.append(*walk.steps[1])
        await log.append(*walk.steps[2])

        assert (seq, log.seq) == (1, 3)
        assert [entry.event for entry in await store.entries("walk")] == [event for event, _ in walk.steps]

    @pytest.mark.parametrize("commit", [broken, lied])
    async def test_stores_the_title_with_the_message_that_gives_it(
        self, commit: Callable[[sqlite3.Connection], None], store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither without it nor twice; and the title of a message that was not stored is not stored either."""
        walk = Walk().say("hello").request(DetailsChanged, metadata={"tenant": "a"})
        log = await Walk().into(store)
        titles = []
        for step in walk.steps[1:]:
            with commits(monkeypatch, commit), pytest.raises(StorageFailed):
                await log.append(*step)
            titles += [(one.title, dict(one.metadata)) for one in await store.list()]
            await log.append(*step)
            titles += [(one.title, dict(one.metadata)) for one in await store.list()]

        after = [("hello", {}), ("hello", {"tenant": "a"})]
        first = [("", {}), ("hello", {})] if commit is broken else after
        assert titles == [first[0], after[0], first[1], after[1]]
        assert (await examine(store)).findings == ()

    async def test_writes_through_what_it_finds_stored(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That a row can be seen does not say that it is on the disk; a commit that has something to write does."""
        log = await Walk().into(store)
        with commits(monkeypatch, lied), pytest.raises(StorageFailed):
            await log.append(*Walk().say("hello").steps[1])
        wal = Path(str(store.database.name) + "-wal")
        await query(store, "PRAGMA wal_checkpoint(TRUNCATE)")
        before = wal.stat().st_size

        await log.append(*Walk().say("hello").steps[1])

        assert (before, wal.stat().st_size > 0) == (0, True)

    async def test_through_sqlalchemy_leaves_no_transaction_open(
        self, store: SqliteStore, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A conversation that could not be made keeps no other from being made, and no step from being stored."""
        log = await Walk().into(store)
        dialect = await store.database.writing.run(lambda connection: connection.dialect)

        def do_commit(connection: Any) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(dialect, "do_commit", do_commit)
            with pytest.raises(StorageFailed):
                await Walk().into(store, "other")

        assert is_free(database)
        await log.append(*Walk().say("hello").steps[1])
        assert [summary.id for summary in await store.list()] == ["walk"]
        await Walk().into(store, "other")

    async def test_to_be_undone_is_undone_before_the_next_one(self, store: SqliteStore) -> None:
        """A disk in trouble may not let a transaction be rolled back at once."""
        log = await Walk().into(store)
        await store.database.writing.run(lambda connection: driver_of(connection).execute("BEGIN IMMEDIATE"))
        await log.append(*Walk().say("hello").steps[1])

        await store.database.writing.run(lambda connection: driver_of(connection).execute("BEGIN IMMEDIATE"))
        await Walk().into(store, "other")

        assert await texts_of(store, "walk") == ["hello"]


HAND_IN = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[2])
from tests.support.walks import Walk
from turnwise.persistence.sqlite.store import SqliteStore

async def main():
    store = await SqliteStore.open(sys.argv[1])
    log = await Walk().into(store)
    waiting = [store.database.write(lambda _: time.sleep(0.5)), log.append(*Walk().say("hello").steps[1])]
    [asyncio.ensure_future(one) for one in waiting]
    await asyncio.sleep(0)

asyncio.run(main())
"""


class TestTheThread:
    """It ends with who holds it, and never in the middle of a step."""

    @pytest.mark.slow
    def test_finishes_what_was_handed_in_before_the_process_ends(self, database: Path) -> None:
        """A program that leaves without closing its store has stored what it handed in."""
        root = str(Path(__file__).parent.parent.parent.parent)
        subprocess.run([sys.executable, "-c", HAND_IN, str(database), root], check=True)

        async def read() -> list[str]:
            store = await SqliteStore.open(database)
            texts = await texts_of(store, "walk")
            await store.close()
            return texts

        assert asyncio.run(read()) == ["hello"]

    @pytest.mark.slow
    async def test_ends_when_nobody_holds_the_store(self, database: Path) -> None:
        """A store that was forgotten is closed: no thread is left, and the next one may have the file."""
        before = set(threading.enumerate())
        store = await SqliteStore.open(database)
        await Walk().into(store)
        threads = set(threading.enumerate()) - before

        del store
        gc.collect()

        assert (len(threads), [thread for thread in threads if thread.is_alive()]) == (2, [])
        await (await SqliteStore.open(database)).close()


WRITE_UNTIL_KILLED = """
import asyncio, sys
from datetime import UTC, datetime
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.outbox import Outgoing
from turnwise.states import Context, LlmResponse, Opened, UserMessage, begin, pending, transition

async def talk(store, name):
    at = datetime.now(UTC)
    opened = Opened(event_id="opened", at=at)
    step = begin(opened)
    log = await store.create(name, opened, step)
    while True:
        if pending(step.state):
            event = LlmResponse(effect_id=min(pending(step.state)), at=at, content="answer " * 20)
        else:
            event = UserMessage(event_id=str(step.state.book.seq), at=at, text="message " * 20)
        step = transition(step.state, event, Context())
        said = [Outgoing(effect.effect_id, "screen") for effect in step.effects if effect.type == "deliver_to_user"]
        await log.append(event, step, said)
        print(name, log.seq, len(said), flush=True)

async def main():
    store = await SqliteStore.open(sys.argv[1])
    await asyncio.gather(*(talk(store, f"walk-{number}") for number in range(20)))

asyncio.run(main())
"""


@pytest.mark.slow
class TestAKilledProcess:
    """kill -9 while many conversations write."""

    @pytest.mark.parametrize("acknowledged", [30, 500, 2_000])
    async def test_loses_nothing_that_was_acknowledged(self, acknowledged: int, database: Path) -> None:
        """Every step whose `append` returned is in its log, with what goes out with it; every log is whole, and ends at
        most one step later."""
        command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(database)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(acknowledged)]
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines(keepends=True)
        told = [line.split() for line in lines if line.endswith("\n")]
        seqs = {name: int(seq) for name, seq, _ in told}

        store = await SqliteStore.open(database)
        outbox = {(row.conversation_id, row.seq) for row in await store.outbox(await store.ids())}
        logs = {summary.id: await store.load(summary.id) for summary in await store.list()}
        reports = [await replay_conversation(store, name) for name in logs]
        await store.close()

        assert {name: logs[name].log.seq - seq for name, seq in seqs.items() if logs[name].log.seq - seq > 1} == {}
        assert all(logs[name].log.seq >= seq for name, seq in seqs.items())
        assert [report.divergence for report in reports] == [None] * len(logs)
        assert {(name, int(seq)) for name, seq, said in told if said == "1"} <= outbox


# --- What an event loop does once in its next iteration, or another thread if the loop is closed before.


@pytest.fixture
def calls() -> list[str]:
    """What was called, in order."""
    return []


@pytest.fixture
def gathering(calls: list[str]) -> Gathering:
    """A gathering that notes its calls."""
    return Gathering(lambda: calls.append("collect"), lambda: calls.append("abandon"))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that is not the one of the test."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def run_once(loop: asyncio.AbstractEventLoop, *callbacks: Callable[[], None]) -> None:
    """Run one iteration of the loop with these callbacks."""
    for callback in (*callbacks, loop.stop):
        loop.call_soon(callback)
    loop.run_forever()


def test_it_is_collected_once_in_the_next_iteration(
    loop: asyncio.AbstractEventLoop, gathering: Gathering, calls: list[str]
) -> None:
    """However often it was asked for in this one."""
    run_once(loop, gathering.ask, gathering.ask)
    assert calls == []

    run_once(loop, gathering.ask)
    assert calls == ["collect"]

    run_once(loop)
    assert calls == ["collect"] * 2


def test_a_loop_that_is_closed_before_abandons_it(
    loop: asyncio.AbstractEventLoop, gathering: Gathering, calls: list[str]
) -> None:
    """And the next loop that asks has its own call."""
    run_once(loop, gathering.ask)
    loop.close()
    assert calls == ["abandon"]

    other = asyncio.new_event_loop()
    run_once(other, gathering.ask)
    run_once(other)
    other.close()
    assert calls == ["abandon", "collect"]


# --- The rows of titles and metadata always say what the log says.


METADATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, True, 1, 1.5, "1", "寿司\u0000", [], {}]))
TITLES = st.sampled_from(["", " ", "Dinner", "Dinner\nfor two", "x" * 1000])

OPENINGS = st.fixed_dictionaries({"metadata": METADATA, "title": st.none() | TITLES, "owner": st.none() | st.text()})

EVENTS: st.SearchStrategy[tuple[Any, dict[str, Any]]] = st.one_of(
    st.tuples(
        st.just(UserMessage),
        st.fixed_dictionaries({"text": st.sampled_from(["hello", " a\nb ", "x" * 100]), "when_busy": st.just("queue")}),
    ),
    st.tuples(
        st.just(DetailsChanged),
        st.fixed_dictionaries({}, optional={"title": TITLES, "metadata": METADATA}),
    ),
    st.tuples(st.just(ToolsChanged), st.fixed_dictionaries({"tools": st.sampled_from([None, ("a",), ("b",)])})),
    st.tuples(st.just(LlmResponse), st.just({"content": "Hello."})),
)


class Writer:
    """Writes a conversation through logs that were loaded at different times."""

    def __init__(self, store: SqliteStore, walk: Walk) -> None:
        self.store = store
        self.walk = walk
        self.logs: list[Log] = []

    async def write(self, kind: Any, fields: dict[str, Any], through: int) -> None:
        """Store an event through one of the logs, or through one that is loaded now; an answer only if the model was
        asked."""
        if kind is LlmResponse and not pending(self.walk.state):
            return
        if through >= len(self.logs):
            self.logs.append((await self.store.load(self.walk.name)).log)
        log = self.logs[min(through, len(self.logs) - 1)]
        await log.catch_up()
        if kind is LlmResponse:
            self.walk.answer(kind, **fields)
        else:
            turn = {"from_turn": self.walk.state.book.turn + 1} if kind is ToolsChanged else {}
            self.walk.request(kind, **fields, **turn)
        await log.append(*self.walk.steps[-1])

    async def check(self) -> None:
        """Compare the rows and the list with the log, and the context with that of all events."""
        details = details_of(await self.store.entries(self.walk.name))
        (listed,) = await self.store.list()

        assert (await self.store.read_record(self.walk.name)).details == details_row(details)
        assert listed.header_fields == details.shown
        assert (await self.store.load(self.walk.name)).context == self.walk.context
        if details.metadata:
            assert await self.store.list(ConversationFilter(metadata=details.metadata, owner=details.owner)) == (
                listed,
            )


class TestTheRows:
    """After any events, through any logs."""

    @pytest.mark.slow
    @given(opening=OPENINGS, events=st.lists(st.tuples(EVENTS, st.integers(0, 3)), max_size=8))
    def test_follow_from_the_log(self, opening: dict[str, Any], events: list[Any]) -> None:
        """Step by step; and a conversation that is written from its record has the same."""

        async def write() -> None:
            store = await SqliteStore.open(":memory:")
            writer = Writer(store, Walk(**opening))
            writer.logs.append(await writer.walk.into(store))
            for (kind, fields), through in (*events, ((CloseRequested, {}), 9)):
                await writer.write(kind, fields, through)
                await writer.check()
            record = await store.read_record("walk")
            await store.delete("walk")
            await store.write_records([record])
            await writer.check()
            await store.close()

        asyncio.run(write())
