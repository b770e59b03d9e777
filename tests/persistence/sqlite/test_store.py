"""What is stored is there, once, and comes back as it was; what could not be stored is not there."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from turnwise.persistence import Store, examine, fork
from turnwise.persistence.codec import GENESIS, content, decode, digest, encode, link
from turnwise.persistence.errors import Damaged, StorageFailed, StoreConflict, TracesLeft
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.records import ConversationRecord, StoredEntry
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import Summary
from turnwise.states import (
    CloseRequested,
    DetailsChanged,
    Event,
    HistoryMessage,
    LlmFailed,
    LlmResponse,
    LogEntry,
    Opened,
    Policy,
    Questions,
    Step,
    ToolsChanged,
    UnknownConversation,
    UserMessage,
    begin,
)
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing import strategies
from turnwise.testing.history import Trace
from turnwise.testing.store_contract import StoreContract

from ...support.store_internals import query, statements_of
from ...support.walks import NOON, Walk

# --- What is stored is there, once, and comes back as it was; what could not be stored never happened.


async def tables(store: SqliteStore) -> list[object]:
    """Everything in the database."""

    def read(connection: Connection) -> list[object]:
        names = ("conversations", "events", "outbox")
        return [connection.exec_driver_sql(f"SELECT * FROM {name}").fetchall() for name in names]

    return await store.database.read(read)


def entries_of(walk: Walk) -> list[LogEntry]:
    """The log that a conversation should have."""
    return [LogEntry.of(event, step) for event, step in walk.steps]


def as_entries(stored: tuple[StoredEntry, ...]) -> list[LogEntry]:
    """Stored steps without their digests."""
    return [LogEntry(entry.seq, entry.event, entry.effects, entry.ended, entry.turn) for entry in stored]


def bytes_of(database: Path) -> bytes:
    """All bytes of a database and the files beside it, read by another process.

    To open and close the file in this one would drop the locks that SQLite holds on it.
    """
    program = "import pathlib, sys; [sys.stdout.buffer.write(pathlib.Path(name).read_bytes()) for name in sys.argv[1:]]"
    files = [file for file in database.parent.iterdir() if file.name.startswith(database.name)]
    return subprocess.run([sys.executable, "-c", program, *files], capture_output=True, check=True).stdout


class TestACreatedConversation:
    """The first step makes the conversation."""

    async def test_comes_back_as_it_was_left(self, store: SqliteStore) -> None:
        """State and log are equal to what was stored, after one step and after many."""
        walk = Walk().turn("tonight").question()
        await walk.into(store)

        loaded = await store.load("walk")

        assert loaded.state == walk.state
        assert as_entries(await store.entries("walk")) == entries_of(walk)
        assert loaded.log.seq == walk.state.book.seq

    async def test_goes_on_where_it_was_left(self, store: SqliteStore) -> None:
        """The log of a loaded conversation takes the next step."""
        walk = Walk().turn("tonight")
        await walk.into(store)
        loaded = await store.load("walk")

        walk.say("And tomorrow?")
        await loaded.log.append(*walk.steps[-1])

        assert (await store.load("walk")).state == walk.state

    async def test_survives_closing(self, database: Path) -> None:
        """P31: an engine can be closed in any state and opened again without loss."""
        walk = Walk().turn("tonight").say("And tomorrow?")
        store = await SqliteStore.open(database)
        await walk.into(store)
        await store.close()

        store = await SqliteStore.open(database)
        loaded = await store.load("walk")

        assert loaded.state == walk.state
        await store.close()

    async def test_cannot_be_made_twice(self, store: SqliteStore) -> None:
        """An id names one conversation."""
        await Walk().into(store)

        with pytest.raises(StoreConflict) as conflict:
            await Walk().into(store)

        assert conflict.value.sentence == "There is already a conversation with the id walk."

    async def test_that_does_not_exist_is_unknown(self, store: SqliteStore) -> None:
        """Each way to ask for it says so."""
        for ask in (store.load, store.entries, store.read_record, store.delete):
            with pytest.raises(UnknownConversation):
                await ask("nobody")

    async def test_works_in_memory(self) -> None:
        """A database in memory does all that a file does."""
        store = await SqliteStore.open(":memory:")
        walk = Walk().turn("tonight")
        await walk.into(store)

        loaded = await store.load("walk")
        report = await replay_conversation(store, "walk")
        await store.delete("walk")

        assert (loaded.state, report.divergence, await store.list()) == (walk.state, None, ())
        await store.close()


class TestEntries:
    """The log, as others read it."""

    async def test_begin_behind_a_step(self, store: SqliteStore) -> None:
        """Who has seen the log up to a step asks for what came after it."""
        walk = Walk().turn("tonight")
        await walk.into(store)

        later = await store.entries("walk", after=3)

        assert as_entries(later) == entries_of(walk)[3:]

    async def test_have_the_digest_of_their_state(self, store: SqliteStore) -> None:
        """The state is stored in full once, for the newest step; of the others only a digest is kept."""
        walk = Walk().turn("tonight")
        await walk.into(store)

        entries = await store.entries("walk")

        assert [entry.digest for entry in entries] == [digest(step.state.to_json()) for _, step in walk.steps]
        assert {len(entry.digest) for entry in entries} | {len(entry.chain) for entry in entries} == {16}


class TestRows:
    """A step becomes a row and a row becomes the step, whatever was said in it."""

    @given(event=strategies.events())
    def test_every_event_comes_back_equal(self, event: Event) -> None:
        """To the microsecond and to the last sign."""
        row, _ = encode(event, Walk().steps[0][1], GENESIS)

        assert decode(row).event == event

    @given(trace=strategies.traces(max_size=12))
    def test_every_step_comes_back_equal(self, trace: Trace) -> None:
        """Effects, the end of a turn, and its number."""
        for observation in trace:
            if observation.step is not None:
                entry = decode(encode(observation.event, observation.step, GENESIS)[0])
                assert as_entries((entry,)) == [LogEntry.of(observation.event, observation.step)]

    def test_nothing_is_written_twice(self) -> None:
        """What has a column of its own does not stand in the payload, and defaults stand nowhere."""
        event, step = Walk().say("hello").steps[1]

        row, _ = encode(event, step, GENESIS)

        assert (row.payload, row.event_id, row.effect_id, row.ended) == ('{"text":"hello"}', "walk-2", None, None)

    async def test_a_turn_takes_little_room(self, store: SqliteStore, database: Path, tmp_path: Path) -> None:
        """With 100 turns in it, the file has grown by less than 1,770 bytes for each, of which every answer is a
        part."""
        await (await SqliteStore.open(tmp_path / "empty.db")).close()
        empty = (tmp_path / "empty.db").stat().st_size
        walk = Walk()
        for number in range(100):
            walk.turn(f"the {number}th evening")
        await walk.into(store)

        await store.close()

        assert database.stat().st_size - empty < 100 * 1_770


class TestTheList:
    """All conversations at a glance."""

    async def test_has_the_newest_first(self, store: SqliteStore) -> None:
        """By the moment of the last step."""
        await Walk("old").turn("tonight").into(store)
        await Walk("new").turn("tonight").say("And tomorrow?").into(store)
        await Walk("oldest").into(store)

        assert [summary.id for summary in await store.list()] == ["new", "old", "oldest"]

    async def test_says_where_each_rests(self, store: SqliteStore) -> None:
        """The state by its literal, whether a model or a tool has still to answer, and when it moved."""
        await Walk("asked").question().into(store)
        await Walk("asking").turn("tonight").say().into(store)

        asking, asked = NOON + timedelta(seconds=5), NOON + timedelta(seconds=3)
        asks = {"id": "asked", "state": "awaiting_user_response", "title": "A table for two?"}
        assert await store.list() == (
            Summary(id="asking", state="llm_requesting", busy=True, updated_at=asking, title="tonight", seq=6),
            Summary(**asks, busy=False, updated_at=asked, seq=4),
        )

    @pytest.mark.parametrize(
        ("walk", "busy"),
        [
            (Walk(), False),
            (Walk().say(), True),
            (Walk().say().call("find_table"), True),
            (Walk().say().answer(LlmFailed, kind="rate_limit", sentence="Too fast."), True),
            (Walk().question(), False),
            (Walk(policy=Policy(questions=Questions(deadline=60.0))).question(), False),
            (Walk().say().answer(LlmFailed, kind="authentication", sentence="Who are you?"), False),
            (Walk().request(CloseRequested), False),
        ],
        ids=lambda value: value.state.type if isinstance(value, Walk) else str(value),
    )
    async def test_a_wait_for_a_person_is_not_busy(self, walk: Walk, busy: bool, store: SqliteStore) -> None:
        """Busy is what a restart must take up again; a person's deadline is not work."""
        await walk.into(store)

        assert [summary.busy for summary in await store.list()] == [busy]

    async def test_timers_are_found(self, store: SqliteStore) -> None:
        """A conversation in which a timer runs is known without reading any log; the first one due comes first."""
        hurried = Policy(questions=Questions(deadline=1.0))
        patient = Policy(questions=Questions(deadline=3600.0))
        await Walk("patient", patient).question().into(store)
        await Walk("hurried", hurried).question().into(store)
        await Walk("retrying").say().answer(LlmFailed, kind="timeout", sentence="Too slow.").into(store)
        await Walk("idle").turn("tonight").into(store)

        assert await store.claim(10) == ("retrying", "hurried", "patient")


class TestAStep:
    """One transaction, and nothing twice."""

    async def test_is_two_statements(self, store: SqliteStore) -> None:
        """The conversation moves on, the step is added: no more goes to the disk."""
        walk = Walk().turn("tonight")
        await walk.into(store)
        log = (await store.load("walk")).log
        words = await statements_of(store)

        for _ in range(2):
            walk.say("And tomorrow?")
            await log.append(*walk.steps[-1])
            walk.answer(LlmResponse, content="Sakura has one.")
            await log.append(*walk.steps[-1])

        assert words == ["BEGIN IMMEDIATE", "UPDATE conversations", "INSERT INTO events", "COMMIT"] * 4

    async def test_of_a_first_message_is_three(self, store: SqliteStore) -> None:
        """It gives the conversation its title, and no later one tries to."""
        walk = Walk().say("hello").answer(LlmResponse, content="Hello.").say("A table")
        log = await Walk().into(store)
        words = await statements_of(store)

        for step in walk.steps[1:]:
            await log.append(*step)

        two = ["UPDATE conversations", "INSERT INTO events"]
        first, later = ["BEGIN IMMEDIATE", *two, "INSERT INTO details", "COMMIT"], ["BEGIN IMMEDIATE", *two, "COMMIT"]
        assert words == [*first, *later, *later]

    async def test_must_follow_the_newest(self, store: SqliteStore) -> None:
        """A step cannot be stored twice, and none can be left out."""
        walk = Walk().turn("tonight")
        log = await Walk().into(store)
        await log.append(*walk.steps[1])

        for index in (0, 1, 3):
            with pytest.raises(StoreConflict):
                await log.append(*walk.steps[index])

        assert log.seq == 2
        assert as_entries(await store.entries("walk")) == entries_of(walk)[:2]

    async def test_has_one_winner(self, store: SqliteStore) -> None:
        """Two that both loaded the conversation race; one is stored, the other loads again and goes on."""
        await Walk().into(store)
        logs = [(await store.load("walk")).log for _ in range(2)]
        walks = [Walk().say(text) for text in ("one", "two")]

        outcomes = await asyncio.gather(
            *(log.append(*walk.steps[1]) for log, walk in zip(logs, walks, strict=True)), return_exceptions=True
        )

        assert outcomes[0] is None
        assert isinstance(outcomes[1], StoreConflict)
        assert outcomes[1].sentence == "The conversation has moved on, or was deleted, since it was loaded."
        assert [log.seq for log in logs] == [2, 1]
        assert (await store.load("walk")).state == walks[0].state

    async def test_is_not_stored_for_a_conversation_that_took_the_place(self, store: SqliteStore) -> None:
        """A log outlives its conversation; one made after it, even under the same id, takes no step of it."""
        log = await Walk().into(store)
        await store.delete("walk")
        await Walk("other").into(store, "walk")

        with pytest.raises(StoreConflict):
            await log.append(*Walk().say().steps[1])

        assert len(await store.entries("walk")) == 1

    async def test_takes_a_request_once(self, store: SqliteStore) -> None:
        """P3: an event id stands in a log once; the database itself sees to it."""
        walk = Walk().turn("tonight")
        walk.take(UserMessage(event_id="walk-2", at=NOON, text="again"))
        log = await Walk().into(store)
        for event, step in walk.steps[1:-1]:
            await log.append(event, step)

        with pytest.raises(StoreConflict) as conflict:
            await log.append(*walk.steps[-1])

        assert conflict.value.sentence == "The request, or the answer to the effect, is already in the log."
        assert (await store.load("walk")).state == walk.steps[-2][1].state

    async def test_takes_an_answer_once(self, store: SqliteStore) -> None:
        """One effect has one answer; the database itself sees to it."""
        walk = Walk().turn("tonight").say("And tomorrow?")
        answer, step = Walk().say().answer(LlmFailed, kind="network", sentence="Cut off.").steps[-1]
        book = step.state.book.replace(seq=walk.state.book.seq + 1)
        log = await walk.into(store)

        with pytest.raises(StoreConflict):
            await log.append(answer, Step(step.state.model_copy(update={"book": book}), step.effects))

        assert (await store.load("walk")).state == walk.state

    async def test_of_one_conversation_leaves_the_others_alone(self, store: SqliteStore) -> None:
        """The same ids of requests and effects stand in many conversations."""
        walk = Walk().turn("tonight")

        await asyncio.gather(*(walk.into(store, f"walk {number}") for number in range(20)))

        assert {(await store.load(summary.id)).state for summary in await store.list()} == {walk.state}

    async def test_is_stored_though_the_caller_is_cancelled(self, store: SqliteStore, database: Path) -> None:
        """Who no longer waits has handed the step in all the same, and the log knows it."""
        walk = Walk().say("hello").call("find_table")
        log = await Walk().into(store)
        await query(store, "PRAGMA busy_timeout = 30000")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            appending = asyncio.create_task(log.append(*walk.steps[1]))
            await asyncio.sleep(0)  # the step is handed in, and the writing thread waits for the lock
            appending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await appending

        await log.append(*walk.steps[2])

        assert log.seq == 3
        assert as_entries(await store.entries("walk")) == entries_of(walk)


@asynccontextmanager
async def full(store: SqliteStore, database: Path) -> AsyncIterator[None]:
    """The file may not grow."""
    await query(store, f"PRAGMA max_page_count = {await query(store, 'PRAGMA page_count')}")
    yield
    await query(store, "PRAGMA max_page_count = 1000000")


@asynccontextmanager
async def failing(store: SqliteStore, database: Path) -> AsyncIterator[None]:
    """The operating system lets no file of this process grow more than ten pages beyond the write-ahead log."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (database.with_name("conversations.db-wal").stat().st_size + 40_960, before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@asynccontextmanager
async def locked(store: SqliteStore, database: Path) -> AsyncIterator[None]:
    """Another program holds the file for longer than anybody waits."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@asynccontextmanager
async def read_only(store: SqliteStore, database: Path) -> AsyncIterator[None]:
    """The file may only be read."""
    await query(store, "PRAGMA query_only = ON")
    yield
    await query(store, "PRAGMA query_only = OFF")


class TestADiskInTrouble:
    """P28: the commit fails; memory equals store, the caller gets a typed error, the conversation goes on."""

    @pytest.mark.parametrize(
        ("trouble", "cause"),
        [
            (full, "the disk is full"),
            (failing, "the disk failed"),
            (locked, "another program holds it locked"),
            (read_only, "it may only be read"),
        ],
    )
    async def test_stores_no_half_of_a_step(self, trouble: Any, cause: str, store: SqliteStore, database: Path) -> None:
        """The error is one sentence (P33), nothing changed, and the same step is stored once the trouble is over."""
        walk = Walk().turn("tonight").say("x" * 100_000)
        log = await Walk().turn("tonight").into(store)
        before = await tables(store)

        async with trouble(store, database):
            with pytest.raises(StorageFailed) as failed:
                await log.append(*walk.steps[-1])
        after = await tables(store)
        await log.append(*walk.steps[-1])

        assert failed.value.sentence == f"{database} cannot be used now: {cause}."
        assert isinstance(failed.value.__cause__, sqlite3.Error)
        assert after == before
        assert (await store.load("walk")).state == walk.state
        assert log.seq == walk.state.book.seq

    @pytest.mark.parametrize("trouble", [full, failing, locked, read_only])
    async def test_makes_no_half_of_a_conversation(self, trouble: Any, store: SqliteStore, database: Path) -> None:
        """The conversation is made with its first step, or not at all."""
        walk = Walk()
        opened = Opened(event_id="walk-1", at=NOON, system="x" * 100_000)

        async with trouble(store, database):
            with pytest.raises(StorageFailed):
                await store.create("walk", opened, begin(opened))
        before = await store.list()
        await walk.into(store)

        assert before == ()
        assert (await store.load("walk")).state == walk.state

    @pytest.mark.parametrize("trouble", [locked, read_only])
    async def test_deletes_no_half_of_a_conversation(self, trouble: Any, store: SqliteStore, database: Path) -> None:
        """A conversation that could not be deleted is still whole."""
        walk = Walk().turn("tonight")
        await walk.into(store)

        async with trouble(store, database):
            with pytest.raises(StorageFailed):
                await store.delete("walk")

        assert (await store.load("walk")).state == walk.state

    async def test_may_leave_traces_of_what_was_deleted(self, store: SqliteStore, database: Path) -> None:
        """The conversation is gone; that the file could not be written anew is said, in one sentence."""
        await Walk("goes").into(store)
        await Walk("stays").turn("x" * 100_000).into(store)

        async with failing(store, database):
            with pytest.raises(TracesLeft) as left:
                await store.delete("goes")

        assert isinstance(left.value.__cause__, sqlite3.Error)
        assert [summary.id for summary in await store.list()] == ["stays"]


class TestDeletion:
    """What is deleted cannot be found again."""

    @pytest.mark.slow
    async def test_leaves_no_trace(self, store: SqliteStore, database: Path) -> None:
        """No text, no id, no state of it is left in the bytes of the file or the files beside it.

        The conversations grow side by side, so that SQLite moves rows about and leaves copies of them in the gaps.
        """
        chance = random.Random(1)
        walks = {f"CONVERSATION{number:02}.": Walk(f"EVENT{number:02}." * 20) for number in range(20)}
        logs = {name: await walk.into(store, name) for name, walk in walks.items()}
        for _ in range(200):
            name, walk = chance.choice(list(walks.items()))
            known = len(walk.steps)
            walk.turn(f"SECRET{name[-3:]}" * chance.choice([1, 10, 100]))
            for event, step in walk.steps[known:]:
                await logs[name].append(event, step)

        for number in range(5):
            await store.delete(f"CONVERSATION{number:02}.")

        left = bytes_of(database)
        words = [f"{word}{number:02}." for word in ("CONVERSATION", "EVENT", "SECRET") for number in range(20)]
        assert {word for word in words if word.encode() in left} == {word for word in words if int(word[-3:-1]) >= 5}

    async def test_leaves_the_others_whole(self, store: SqliteStore) -> None:
        """The log of the next conversation loads, replays and takes a step as before."""
        walk = Walk("stays").turn("tonight")
        log = await walk.into(store)
        await Walk("goes").turn("tonight").into(store)

        await store.delete("goes")

        assert (await store.load("stays")).state == walk.state
        await log.append(*walk.say("And tomorrow?").steps[-1])
        assert (await replay_conversation(store, "stays")).divergence is None

    async def test_says_when_traces_are_left(self, store: SqliteStore, database: Path) -> None:
        """A program that reads keeps the write-ahead log from being emptied; the next deletion catches up."""
        await Walk("first").turn("SECRET").into(store)
        await Walk("second").into(store)
        with closing(sqlite3.connect(database, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM events").fetchall()
            with pytest.raises(TracesLeft) as left:
                await store.delete("first")
        traces = b"SECRET" in bytes_of(database)

        await store.delete("second")

        when = "until the engine closes it, or opens it the next time"
        expected = f"The conversation is deleted, but traces of it stay in {database} {when}."
        assert left.value.sentence == expected
        assert (traces, b"SECRET" in bytes_of(database)) == (True, False)


class TestDamage:
    """Nobody acts on a log that is not what was stored."""

    @pytest.mark.parametrize(
        ("sql", "seq"),
        [
            ("UPDATE events SET payload = replace(payload, 'You', 'I') WHERE seq = 1", 1),
            ("UPDATE events SET type = 'user_message' WHERE seq = 5", 5),
            ("UPDATE events SET effects = NULL WHERE seq = 5", 5),
            ("DELETE FROM events WHERE seq = 1", 1),
            ("DELETE FROM events WHERE seq = 4", 4),
            ("DELETE FROM events WHERE seq = 5", 5),
            ("DELETE FROM events", 1),
            ('UPDATE conversations SET state = \'{"type":"closed"}\'', 5),
            ("UPDATE conversations SET seq = 4", 5),
            ("UPDATE conversations SET chain = zeroblob(16)", 5),
        ],
    )
    async def test_of_the_head_is_refused_when_loaded(self, sql: str, seq: int, store: SqliteStore) -> None:
        """So is damage of the first and of the newest step. One sentence names the step and shows nothing of what was
        said."""
        await Walk().turn("SECRET").into(store)
        await query(store, sql)

        with pytest.raises(Damaged) as damaged:
            await store.load("walk")

        assert damaged.value.seq == seq
        assert str(seq) in damaged.value.sentence
        assert "SECRET" not in damaged.value.sentence

    async def test_of_the_state_is_refused_when_loaded(self, store: SqliteStore) -> None:
        """Also where only a digest could tell: the state is another, and valid."""
        await Walk().turn("tonight").into(store)
        await query(store, "UPDATE conversations SET state = replace(state, '\"turn\":1', '\"turn\":2')")

        with pytest.raises(Damaged):
            await store.load("walk")

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE conversations SET updated_at = 'noon'",
            "UPDATE conversations SET updated_at = 9223372036854775807",
            "UPDATE details SET metadata = '[1]'",
        ],
    )
    async def test_of_what_is_listed_is_told_by_the_list(self, sql: str, store: SqliteStore) -> None:
        """A list with a wrong moment in it would be in the wrong order."""
        await Walk(metadata={"tenant": "a"}).turn("tonight").into(store)
        await query(store, sql)

        with pytest.raises(Damaged) as damaged:
            await store.list()

        assert damaged.value.sentence == "The list of the conversations cannot be read: the database is damaged."

    @pytest.mark.parametrize(
        ("sql", "seq"),
        [
            ('UPDATE events SET payload = \'{"text":"never said"}\' WHERE seq = 2', 2),
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 3", 3),
            ("UPDATE events SET version = 2 WHERE seq = 4", 4),
            ("DELETE FROM events WHERE seq = 3", 3),
        ],
    )
    async def test_further_back_is_found_when_the_log_is_read(self, sql: str, seq: int, store: SqliteStore) -> None:
        """The conversation can be loaded, and whoever reads its log is told which step is damaged."""
        await Walk().turn("SECRET").into(store)
        await query(store, sql)

        await store.load("walk")
        with pytest.raises(Damaged) as damaged:
            await store.entries("walk")

        assert damaged.value.seq == seq
        assert "SECRET" not in damaged.value.sentence

    async def test_is_found_by_the_link_of_the_step_before(self, store: SqliteStore) -> None:
        """Whoever reads a part of the log is told of damage in that part only."""
        await Walk().turn("tonight").into(store)
        await query(store, "UPDATE events SET turn = 7 WHERE seq = 3")

        assert [entry.seq for entry in await store.entries("walk", after=3)] == [4, 5]
        assert [entry.seq for entry in await store.entries("walk", up_to=2)] == [1, 2]
        for after, up_to in ((0, None), (2, None), (1, 3)):
            with pytest.raises(Damaged) as damaged:
                await store.entries("walk", after, up_to)
            assert damaged.value.seq == 3


WRITE_UNTIL_KILLED = """
import asyncio, sys
from datetime import UTC, datetime
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Context, LlmResponse, Opened, UserMessage, begin, pending, transition

async def main():
    store = await SqliteStore.open(sys.argv[1])
    at = datetime.now(UTC)
    opened = Opened(event_id="opened", at=at)
    step = begin(opened)
    log = await store.create("walk", opened, step)
    while True:
        if pending(step.state):
            event = LlmResponse(effect_id=min(pending(step.state)), at=at, content="answer " * 100)
        else:
            event = UserMessage(event_id=str(step.state.book.seq), at=at, text="message " * 100)
        step = transition(step.state, event, Context())
        await log.append(event, step)
        print(log.seq, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
class TestAKilledProcess:
    """kill -9 at any moment."""

    @pytest.mark.parametrize("acknowledged", [2, 37, 300])
    async def test_loses_nothing_that_was_acknowledged(self, acknowledged: int, database: Path) -> None:
        """Every step whose `append` returned is in the log, the log has no gap, and it leads to the stored state."""
        command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(database)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while (seq := int(process.stdout.readline())) < acknowledged:
                pass
            process.send_signal(signal.SIGKILL)
            seq = max([seq, *map(int, process.stdout.read().split())])

        store = await SqliteStore.open(database)
        loaded = await store.load("walk")

        assert loaded.log.seq in (seq, seq + 1)
        assert [entry.seq for entry in await store.entries("walk")] == list(range(1, loaded.log.seq + 1))
        assert (await replay_conversation(store, "walk")).divergence is None
        await store.close()


# --- Two owners never see each other's messages, whatever happened to their conversations.


OWNERS = ("anna", "Anna", "", "anna\0", None)
OWNER = st.sampled_from(OWNERS)
NAME = st.sampled_from("abcd")

MOVES = st.one_of(
    st.tuples(st.just("create"), NAME, OWNER),
    st.tuples(st.just("say"), NAME),
    st.tuples(st.just("delete"), NAME),
    st.tuples(st.just("fork"), NAME, NAME),
    st.tuples(st.just("take_in"), NAME, NAME),
    st.tuples(st.just("search"), NAME, OWNER),
)


class History:
    """A store, and what each conversation in it holds. Every message is a word of its own."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.owners: dict[str, str | None] = {}
        self.said: dict[str, list[str]] = {}
        self._walks: dict[str, Walk] = {}
        self._count = 0

    async def move(self, kind: str, name: str, *more: Any) -> None:
        """Do one thing to a conversation, if it can be done."""
        await getattr(self, kind)(name, *more)

    async def create(self, name: str, owner: str | None) -> None:
        """Begin a conversation."""
        if name not in self.owners:
            self._walks[name] = Walk(name, owner=owner)
            await self._walks[name].into(self.store)
            self.owners[name], self.said[name] = owner, []

    async def say(self, name: str) -> None:
        """Have a turn."""
        if name in self._walks:
            self._count += 1
            word, walk = f"word{self._count}", self._walks[name]
            log, before = (await self.store.load(name)).log, len(walk.steps)
            for event, step in walk.turn(f"{word} sushi").steps[before:]:
                await log.append(event, step)
            self.said[name].append(word)

    async def delete(self, name: str) -> None:
        """Delete a conversation."""
        if name in self.owners:
            await self.store.delete(name)
            for known in (self.owners, self.said, self._walks):
                known.pop(name, None)

    async def fork(self, name: str, copy: str) -> None:
        """Copy a conversation, for the same owner."""
        if name in self.owners and copy not in self.owners:
            await fork(self.store, name, copy, None, NOON)
            self.owners[copy], self.said[copy] = self.owners[name], [*self.said[name]]

    async def take_in(self, name: str, copy: str) -> None:
        """Import a conversation under another id, and for another owner."""
        if name in self.owners and copy not in self.owners:
            owner = "bert" if self.owners[name] is None else None
            record = await self.store.read_record(name)
            await self.store.write_records([record._replace(id=copy, owner=owner, outbox=())])
            self.owners[copy], self.said[copy] = owner, [*self.said[name]]

    async def search(self, name: str, owner: str | None) -> None:
        """Search as an engine does in a conversation, and compare with what may be found."""
        scope = MemoryScope(name, owner, 10**6)
        allowed = {
            word
            for each, words in self.said.items()
            if (each == name if owner is None else self.owners[each] == owner)
            for word in words
        }
        query = MemoryQuery(scope, ("sushi",), None, None, 1000)
        without = [text for _, text in await self.store.without_vectors(scope, "space", 1000)]
        for texts in (await self.store.search(query), await self.store.recent(scope, NOON), without):
            found = {text if isinstance(text, str) else text.text for text in texts}
            assert {text.split()[0] for text in found if text.startswith("word")} == allowed


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=15)
@given(st.lists(MOVES, max_size=25))
def test_owners_never_see_each_other(moves: list[tuple[Any, ...]]) -> None:
    """Every search finds all messages of its scope and no other message."""

    async def play() -> None:
        store = await SqliteStore.open(":memory:")
        history = History(store)
        for kind, *arguments in moves:
            await history.move(kind, *arguments)
        for name in "ab":
            for owner in (*OWNERS, "bert"):
                await history.search(name, owner)
        indexed = [one for one in (await examine(store)).findings if "what was said" in one.sentence]
        assert indexed == []
        await store.close()

    asyncio.run(play())


# --- A conversation is loaded by few short reads, whatever it began with and however often it was changed.


HISTORY = (HistoryMessage.model_validate({"role": "user", "content": "hello"}),)


class TestAGivenHistory:
    """It is not decoded for the next step, which does not need it."""

    async def test_is_left_out_when_the_conversation_is_loaded(self, store: SqliteStore) -> None:
        """One that cannot be decoded, although its digest holds, is noticed by whoever reads it, and not before."""
        event, step = Walk(messages=HISTORY, owner="anna", metadata={"tenant": "a"}).steps[0]
        row, head = encode(event, step, GENESIS)
        row = row._replace(payload=row.payload.replace('"role":"user"', '"role":"nobody"'))
        row = row._replace(chain=link(GENESIS, content(row[:-1])))
        await store.write_records([ConversationRecord("walk", row.at, head._replace(chain=row.chain), (row,), "anna")])

        loaded = await store.load("walk")

        assert (loaded.state, loaded.context.metadata) == (step.state, {"tenant": "a"})
        with pytest.raises(Damaged, match="Step 1 cannot be read"):
            await store.entries("walk")

    async def test_that_was_damaged_is_noticed(self, store: SqliteStore) -> None:
        """The digest of the first step covers it."""
        await Walk(messages=HISTORY).into(store)
        await query(store, "UPDATE events SET payload = replace(payload, 'hello', 'hullo') WHERE seq = 1")

        with pytest.raises(Damaged, match="Step 1 is not what was stored"):
            await store.load("walk")


class TestChangesOfTheContext:
    """What still matters of them is read, and verified."""

    @pytest.mark.parametrize(
        ("sql", "sentence"),
        [
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 3", "Step 3 cannot be read"),
            ('UPDATE events SET payload = \'{"title":"Lunch"}\' WHERE seq = 3', "Step 3 is not what was stored"),
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 5", "Step 5 cannot be read"),
            ('UPDATE events SET payload = \'{"tools":["b"],"from_turn":1}\' WHERE seq = 5', "Step 5 is not what"),
        ],
    )
    async def test_that_were_damaged_are_noticed(self, sql: str, sentence: str, store: SqliteStore) -> None:
        """Nothing goes on from what is not what was stored."""
        walk = Walk().say().request(DetailsChanged, title="Dinner").request(DetailsChanged, metadata={"tenant": "a"})
        await walk.request(ToolsChanged, tools=("a",), from_turn=2).into(store)
        await query(store, sql)

        with pytest.raises(Damaged, match=sentence):
            await store.load("walk")

    async def test_that_later_ones_replaced_are_not_read(self, store: SqliteStore) -> None:
        """Damage further back in the log is found by reading the log."""
        walk = Walk().say()
        for number in range(3):
            walk.request(DetailsChanged, title=f"Dinner {number}", metadata={"number": number})
            walk.request(ToolsChanged, tools=(f"tool {number}",), from_turn=2)
        await walk.into(store)
        await query(store, "UPDATE events SET payload = '{}' WHERE seq IN (3, 4, 5, 6)")

        loaded = await store.load("walk")

        assert loaded.context == walk.context
        with pytest.raises(Damaged, match="Step 3 "):
            await store.entries("walk")


# --- The store that ships does what every store must do: in a file, and in memory.


@asynccontextmanager
async def opened(url: str | Path) -> AsyncIterator[SqliteStore]:
    """Open a store, which waits for a lock only briefly."""
    store = await SqliteStore.open(url, busy_timeout=0.05)
    try:
        yield store
    finally:
        await store.close()


class TestAFile(StoreContract):
    """SQLite in a file."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """The file is `dinner.db`."""
        return opened(place / "dinner.db")

    @asynccontextmanager
    async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
        """Another program holds the file locked."""
        with closing(sqlite3.connect(place / "dinner.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


class TestMemory(StoreContract):
    """SQLite in memory, which is gone when it is closed."""

    lasting = False

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """There is no file."""
        return opened(":memory:")
