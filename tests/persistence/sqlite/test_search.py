"""What is found again: texts and lists, by indexes that follow the logs."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from sqlalchemy import Connection

from turnwise.persistence import SqliteStore, StorageFailed, examine, repair
from turnwise.persistence.sqlite.database import Database, open_for_reading, open_for_writing
from turnwise.persistence.sqlite.file import Address, driver_of
from turnwise.persistence.sqlite.search import NAME
from turnwise.persistence.sqlite.thread import ConnectionThread, Worker
from turnwise.persistence.sqlite.writer import Writer, WritingThread
from turnwise.persistence.summaries import ConversationFilter
from turnwise.persistence.vectors import encoded
from turnwise.states import (
    AgentMail,
    AgentMessage,
    DetailsChanged,
    HistoryMessage,
    LlmResponse,
    Policy,
    PolicyChanged,
    Schedule,
    ScheduleChanged,
    Speech,
    ToolCall,
    ToolComplete,
    ToolResult,
    ToolsChanged,
)
from turnwise.states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery

from ...support.store_internals import query, statements_of
from ...support.walks import NOON, Walk

# --- What is found again: a text stands once in the database, in the step that brought it, and the index refers to it;
# vectors are compared in the same way with numpy and without it.


ANNA = MemoryScope("", "anna", 0)
SIZE = 4


async def nearest(path: Path) -> list[tuple[FoundText, ...]]:
    """Some searches over many vectors, the same in each call."""
    chance = random.Random(7)

    def vector() -> list[float]:
        return [chance.gauss(0, 1) for _ in range(SIZE)]

    store = await SqliteStore.open(path)
    given = tuple(HistoryMessage(role="user", content=f"text {number}") for number in range(2_100))
    await Walk("one", owner="anna", messages=given).into(store)
    without = await store.without_vectors(ANNA, "space", 10_000)
    await store.keep_vectors("space", {number: vector() for number, _ in without})
    found = [await store.nearest(VectorQuery(ANNA, "space", vector(), None, None, 20)) for _ in range(3)]
    await store.close()
    return found


def spoken() -> Walk:
    """A turn in which a tool writes to another agent and speaks to the user."""
    walk = Walk("spoken", policy=Policy(text="thought"), owner="anna").say("Speak!")
    call = ToolCall(call_id="call", name="speak", exclusive=True, acts=("speech", "mail"))
    walk.answer(LlmResponse, tool_calls=(call,), finish_reason="tool_calls")
    acts = (AgentMail(target="worker", text="mail"), Speech(text="Hello.", when="now"))
    return walk.answer(ToolComplete, result=ToolResult(text="result", acts=acts))


def passed_on() -> Walk:
    """Another agent's message is passed on to the user."""
    walk = Walk("passed on", owner="anna").request(AgentMessage, origin="worker", text="News!", audience="user")
    while walk.state.type != "idle":
        walk.answer(LlmResponse, content="")
    return walk


@pytest.mark.slow
async def test_numpy_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the number of vectors that are compared at a time."""
    with_numpy = await nearest(tmp_path / "with.db")
    monkeypatch.setitem(sys.modules, "numpy", None)
    without_numpy = await nearest(tmp_path / "without.db")

    assert [len(found) for found in with_numpy] == [20, 20, 20]
    assert with_numpy == without_numpy


async def test_vectors_of_zeros_are_no_fault(tmp_path: Path) -> None:
    """They are as far from everything as a right angle is."""
    store = await SqliteStore.open(tmp_path / "dinner.db")
    await Walk("one", owner="anna", messages=(HistoryMessage(role="user", content="text"),)).into(store)
    ((number, _),) = await store.without_vectors(ANNA, "space", 9)
    await store.keep_vectors("space", {number: [0.0, 0.0]})

    assert [one.text for one in await store.nearest(VectorQuery(ANNA, "space", [0.0, 0.0], None, None, 9))] == ["text"]
    await store.close()


def test_a_vector_takes_four_bytes_a_number() -> None:
    """The lowest byte first, whatever the machine."""
    assert encoded([3.0, 4.0]) == b"\x9a\x99\x19?\xcd\xccL?"
    assert len(encoded([1.0] * 1536)) == 4 * 1536


async def test_texts_are_referred_to(tmp_path: Path) -> None:
    """Those of messages, replies, speeches and messages that are passed on. What stands nowhere as it was said, or what
    SQLite would not read to its end, is written out."""
    marked = Walk("marked", policy=Policy(marker="TOOL"), owner="anna").say('one \0 two 寿司 \\ " \u2028 end')
    marked.answer(LlmResponse, content="TOOL look\nHere.")
    store = await SqliteStore.open(tmp_path / "dinner.db")
    for walk in (spoken(), passed_on(), marked):
        await walk.into(store)

    found = [text.text for text in await store.recent(ANNA, NOON)]
    await store.close()

    assert sorted(found) == sorted(["Speak!", "Hello.", "News!", 'one \0 two 寿司 \\ " \u2028 end', "Here."])
    with closing(sqlite3.connect(tmp_path / "dinner.db")) as other:
        written = [text for (text,) in other.execute("SELECT text FROM texts WHERE text IS NOT NULL")]
        paths = {path for (path,) in other.execute("SELECT path FROM texts WHERE text IS NULL")}
    assert sorted(written) == ["Here.", 'one \0 two 寿司 \\ " \u2028 end']
    assert paths == {"$.text", "$.result.acts[1].text"}


# --- The index follows the logs, without a share in any commit of a step.


PATIENCE = 60
"""Seconds to wait for another thread: far more than it takes."""


@asynccontextmanager
async def opened(path: Path, *, read_only: bool = False) -> AsyncIterator[SqliteStore]:
    """Open the database, and close it in the end."""
    store = await SqliteStore.open(path, read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def always_idle(path: Path) -> AsyncIterator[SqliteStore]:
    """A store for which a second passes whenever its writing thread looks at the clock."""
    address, seconds = Address.of(path), count()
    writer = WritingThread(Writer("The file", lambda: float(next(seconds))))
    await writer.open(partial(open_for_writing, address, 1.0))
    reader = ConnectionThread(Worker("The file"))
    await reader.open(partial(open_for_reading, address, 1.0))
    store = SqliteStore(Database(address, reader, writer))
    try:
        yield store
    finally:
        await store.close()


async def found(store: SqliteStore, *keywords: str) -> list[str]:
    """Search all conversations of an owner, and return the messages of people."""
    texts = await store.search(MemoryQuery(ANNA, keywords, None, None, 1000))
    return sorted(text.text for text in texts if text.role == "user")


class TestADatabaseThatNobodySearches:
    """It has no index."""

    async def test_stores_steps_as_before(self, tmp_path: Path) -> None:
        """No statement of a step is about texts, before the first search and after it."""
        async with opened(tmp_path / "dinner.db") as store:
            log = await Walk("one", owner="anna").into(store)
            statements = await statements_of(store)
            walk = Walk("one", owner="anna").say("sushi")
            await log.append(*walk.steps[-1])
            first = statements.copy()
            assert await query(store, f"SELECT count(*) FROM sqlite_master WHERE name = '{NAME}'") == 0

            assert await found(store, "sushi") == ["sushi"]
            statements.clear()
            await log.append(*walk.answer(LlmResponse, content="Yes.").steps[-1])

            assert not any("text" in statement for statement in (*first, *statements))


class TestIdleMoments:
    """What was stored is indexed before anybody searches."""

    async def test_texts_are_indexed_when_nothing_else_is_to_do(self, tmp_path: Path) -> None:
        """Once somebody has searched. The search that comes then has nothing left to index."""
        indexed = threading.Event()

        def note(statement: str) -> None:
            if statement.startswith("INSERT INTO text_positions"):
                indexed.set()

        async with always_idle(tmp_path / "dinner.db") as store:
            assert await found(store, "sushi") == []
            await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
            await Walk("one", owner="anna").turn("sushi").into(store)

            assert await asyncio.to_thread(indexed.wait, PATIENCE)
            assert await found(store, "sushi") == ["sushi"]

    async def test_a_failure_is_told_to_the_next_search(self, tmp_path: Path) -> None:
        """The index falls behind, steps are stored all the same, and it goes on when the cause is gone."""
        async with always_idle(tmp_path / "dinner.db") as store:
            await found(store, "sushi")
            with closing(sqlite3.connect(tmp_path / "dinner.db", isolation_level=None)) as other:
                other.execute("ALTER TABLE text_positions RENAME TO hidden")
                await Walk("one", owner="anna").turn("sushi").into(store)
                with pytest.raises(StorageFailed):
                    await found(store, "sushi")
                other.execute("ALTER TABLE hidden RENAME TO text_positions")

            assert await found(store, "sushi") == ["sushi"]


class TestACrash:
    """At any moment of the work: nothing is missing afterwards, and nothing is there twice."""

    async def test_interrupted_work_is_done_again(self, tmp_path: Path) -> None:
        """The work is interrupted later each time, until it succeeds."""
        texts = [f"sushi {number}" for number in range(5)]
        async with opened(tmp_path / "dinner.db") as store:
            walk = Walk("one", owner="anna", messages=(HistoryMessage(role="user", content="sushi given"),))
            for text in texts:
                walk.turn(text)
            await walk.into(store)
            interrupted = 0
            for steps in count(1):
                left = count(steps, -1)

                def interrupt(connection: Connection, left: count[int] = left) -> None:
                    driver_of(connection).set_progress_handler(lambda: next(left) <= 0, 100)

                await store.database.writing.run(interrupt)
                try:
                    assert await found(store, "sushi") == sorted(["sushi given", *texts])
                    break
                except StorageFailed:
                    interrupted += 1
            await store.database.writing.run(lambda connection: driver_of(connection).set_progress_handler(None, 0))

            assert interrupted > 5
            assert (await examine(store)).findings == ()

    async def test_what_was_stored_before_a_crash_is_found(self, tmp_path: Path) -> None:
        """The process that opens the database next indexes what the last one did not."""
        async with opened(tmp_path / "dinner.db") as store:
            await Walk("one", owner="anna").turn("sushi one").into(store)
            await found(store, "sushi")
            await Walk("two", owner="anna").turn("sushi two").into(store)
            log = (await store.load("one")).log
            await log.append(*Walk("one", owner="anna").turn("sushi one").say("sushi three").steps[-1])

        async with opened(tmp_path / "dinner.db") as store:
            assert await found(store, "sushi") == ["sushi one", "sushi three", "sushi two"]
            assert (await examine(store)).findings == ()


class TestNumbersThatAreUsedAgain:
    """SQLite gives the key of a deleted conversation to the next one."""

    async def test_no_text_is_passed_over(self, tmp_path: Path) -> None:
        """Also if the new conversation has as many steps as the old one had, and the same number of texts."""
        async with opened(tmp_path / "dinner.db") as store:
            for number in range(4):
                await Walk("one", owner="anna").turn(f"sushi {number}").into(store)
                if number % 2:
                    assert await found(store, "sushi") == [f"sushi {number}"]
                key = await query(store, "SELECT key FROM conversations")
                await store.delete("one")

                assert key == 1
                assert await found(store, "sushi") == []


class TestReadingOnly:
    """A store that may not write finds what was indexed."""

    async def test_the_index_is_used_as_it_is(self, tmp_path: Path) -> None:
        """Beside an engine that writes."""
        async with opened(tmp_path / "dinner.db") as store:
            await Walk("one", owner="anna").turn("sushi one").into(store)
            async with opened(tmp_path / "dinner.db", read_only=True) as reader:
                assert await found(reader, "sushi") == []
                await found(store, "sushi")
                await Walk("two", owner="anna").turn("sushi two").into(store)

                assert await found(reader, "sushi") == ["sushi one"]
                assert len(await reader.recent(ANNA, NOON)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        f"DROP TABLE {NAME}",
        f"DELETE FROM {NAME}_data",
        f"UPDATE {NAME}_data SET block = x'00'",
        f"DROP TABLE {NAME}_idx",
    ],
)
async def test_an_index_that_is_torn_while_it_is_used_is_built_again(tmp_path: Path, damage: str) -> None:
    """The search that notices the damage fails, and the next one finds everything."""
    path = tmp_path / "dinner.db"
    async with opened(path) as store:
        log = await Walk("one", owner="anna").say("sushi").into(store)
        assert await found(store, "sushi") == ["sushi"]
        with closing(sqlite3.connect(path)) as driver, driver:
            driver.execute(damage)
        await Walk("two", owner="anna").say("more sushi").into(store)
        with pytest.raises(StorageFailed):
            await found(store, "sushi")

        assert await found(store, "sushi") == ["more sushi", "sushi"]
        assert log.seq > 0
        assert await store.examine_storage() == ()


# --- The doctor finds an index that does not agree with the logs, and builds it again.


TEXTS = ["A table for sushi", "我想吃寿司", "Nothing today"]


async def indexing_found(store: SqliteStore, *keywords: str, owner: str = "anna") -> list[str]:
    """Search all conversations of an owner, and return the messages of people."""
    texts = await store.search(MemoryQuery(MemoryScope("", owner, 0), keywords, None, None, 100))
    return sorted(text.text for text in texts if text.role == "user")


async def indexed(path: Path) -> None:
    """A database with an index: two conversations of one owner and one of another."""
    async with opened(path) as store:
        await Walk("one", owner="anna").turn(TEXTS[0]).turn(TEXTS[1]).into(store)
        await Walk("two", owner="anna").turn(TEXTS[2]).into(store)
        await Walk("three", owner="bert").turn(TEXTS[0]).into(store)
        await indexing_found(store, "sushi")
        await indexing_found(store, "sushi", owner="bert")


def change(path: Path, *statements: str) -> None:
    """Change what is stored, as no part of turnwise would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for sql in statements:
            other.execute(sql)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose texts were indexed. Each test has a copy of it."""
    path = tmp_path_factory.mktemp("original") / "dinner.db"
    asyncio.run(indexed(path))
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A copy of the database."""
    return Path(copy(original, tmp_path / "dinner.db"))


DAMAGES = {
    "no index": (f"DROP TABLE {NAME}",),
    "no text": ("DELETE FROM texts WHERE seq = 2",),
    "one text too many": (
        "INSERT INTO texts (conversation, seq, part, scope, at, turn, by_user, text, checksum)"
        " SELECT conversation, seq, 7, scope, at, turn, by_user, 'sushi', 7 FROM texts WHERE id = 1",
    ),
    "a text that belongs to nobody": ("UPDATE texts SET conversation = 77 WHERE id = 1",),
    "another moment": ("UPDATE texts SET at = at + 1 WHERE id = 1",),
    "another reference": ("UPDATE texts SET path = '$.nothing' WHERE id = 1",),
    "another owner's number": ("UPDATE texts SET scope = 7 WHERE id = 1",),
    "a position too far on": ("UPDATE text_positions SET seq = 3", "DELETE FROM texts WHERE seq > 4"),
    "a word too many": (f"INSERT INTO {NAME} (rowid, words) VALUES (1, 'more')",),
    "words of no text": (f"INSERT INTO {NAME} (rowid, words) VALUES (77, 'more')",),
    "words forgotten": (f"INSERT INTO {NAME} ({NAME}) VALUES ('delete-all')",),
    "a torn index": (f"UPDATE {NAME}_data SET block = zeroblob(length(block)) WHERE id > 10",),
    "an index without its structure": (f"DELETE FROM {NAME}_data WHERE id = 10",),
    "an index without its words": (f"DELETE FROM {NAME}_data",),
    "an index without its table of words": (f"DROP TABLE {NAME}_data",),
    "an index without its settings": (f"DROP TABLE {NAME}_config",),
}


class TestTheDoctor:
    """`examine` and `repair`."""

    async def test_finds_nothing_wrong(self, path: Path) -> None:
        """Before the first search, behind it, and when the index has fallen behind."""
        async with opened(path) as store:
            assert (await examine(store)).findings == ()
            await Walk("four", owner="anna").turn("more sushi").into(store)
            assert (await examine(store)).findings == ()
            assert await indexing_found(store, "sushi") == [TEXTS[0], "more sushi"]
            assert (await examine(store)).findings == ()
        async with opened(path, read_only=True) as store:
            assert (await examine(store)).findings == ()
            assert await indexing_found(store, "寿司") == [TEXTS[1]]

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", DAMAGES)
    async def test_finds_a_wrong_index_and_builds_it_again(self, damage: str, path: Path) -> None:
        """Whatever is wrong with it. A second examination finds nothing."""
        change(path, *DAMAGES[damage])
        async with opened(path, read_only=True) as store:
            seen = {finding.sentence for finding in (await examine(store)).findings}

        async with opened(path) as store:
            findings = (await examine(store)).findings
            await repair(store, findings)

            assert {finding.sentence for finding in findings} == seen != set()
            assert all("what was said" in sentence or "of no conversation" in sentence for sentence in seen)
            assert (await examine(store)).findings == ()
            assert await indexing_found(store, "sushi") == [TEXTS[0]]
            assert await indexing_found(store, "寿司", "nothing") == [TEXTS[2], TEXTS[1]]
            assert await indexing_found(store, "寿司", "sushi", owner="bert") == [TEXTS[0]]

    @pytest.mark.parametrize("damage", ["no text", "another reference", "a torn index", "an index without its words"])
    async def test_a_conversation_can_be_deleted_whatever_the_index_is_like(self, damage: str, path: Path) -> None:
        """An index that cannot forget the conversation is dropped, and built again when somebody searches."""
        change(path, *DAMAGES[damage])

        async with opened(path) as store:
            await store.delete("one")
            try:
                rest = await indexing_found(store, "sushi", "nothing")
            except StorageFailed:
                await repair(store, (await examine(store)).findings)
                rest = await indexing_found(store, "sushi", "nothing")

        assert set(rest) <= {TEXTS[2], "sushi"}

    async def test_an_owner_who_is_mended_has_his_texts(self, path: Path) -> None:
        """The texts of a conversation follow its owner, and the wrong one finds none of them."""
        change(path, "UPDATE conversations SET owner = 'bert' WHERE id = 'one'")
        async with opened(path) as store:
            assert await indexing_found(store, "寿司") == []
            await repair(store, (await examine(store)).findings)

            assert await indexing_found(store, "寿司") == [TEXTS[1]]
            assert await indexing_found(store, "寿司", owner="bert") == []
            assert (await examine(store)).findings == ()


# --- A list is found by indexes, and reads no logs.


@pytest.fixture
async def memory() -> AsyncIterator[SqliteStore]:
    """A store in memory, in which one connection reads and writes."""
    store = await SqliteStore.open(":memory:")
    await Walk().turn("tonight").into(store)
    yield store
    await store.close()


async def plans_of(store: SqliteStore, read: Any) -> list[str]:
    """Return how SQLite carries out the queries that `read` makes: the lines of EXPLAIN QUERY PLAN."""
    statements: list[str] = []

    def trace(connection: Connection, callback: Any) -> None:
        driver_of(connection).set_trace_callback(callback)

    def explain(connection: Connection) -> list[str]:
        return [line for statement in statements for line in _plan(driver_of(connection), statement)]

    await store.database.writing.run(lambda connection: trace(connection, statements.append))
    await read()
    await store.database.writing.run(lambda connection: trace(connection, None))
    return list(await store.database.writing.run(explain))


def _plan(driver: sqlite3.Connection, statement: str) -> list[str]:
    if not statement.startswith("SELECT"):
        return []
    return [str(row[-1]) for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}")]


class TestAList:
    """However many conversations there are."""

    async def test_of_an_owner_uses_the_index_of_owners(self, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(
            memory, lambda: memory.list(ConversationFilter(owner="anna", state="idle", limit=50, before="walk"))
        )

        assert any("conversations USING INDEX conversations_owner" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    @pytest.mark.parametrize("metadata", [{"tenant": "a"}, {"tenant": "a", "seats": 2, "open": True}])
    @pytest.mark.parametrize("owner", [None, "anna"])
    async def test_by_metadata_uses_the_key_of_its_entries(
        self, metadata: dict[str, Any], owner: str | None, memory: SqliteStore
    ) -> None:
        """Nothing is scanned, with and without an owner."""
        plans = await plans_of(
            memory, lambda: memory.list(ConversationFilter(metadata=metadata, owner=owner, limit=50))
        )

        assert any("metadata_entries USING PRIMARY KEY (entry=?)" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    @pytest.mark.parametrize("column", ["parent", "works_for", "role"])
    async def test_of_agents_uses_the_index_of_whom_they_belong_to(self, column: str, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(memory, lambda: memory.list(ConversationFilter(**{column: "background"}, limit=50)))

        assert any(f"USING COVERING INDEX details_{column}" in plan for plan in plans), plans
        assert not [plan for plan in plans if plan.startswith("SCAN")]

    async def test_of_scheduled_wake_ups_is_read_from_their_index(self, memory: SqliteStore) -> None:
        """In their order, so that no other conversation is looked at, and nothing is sorted."""
        plans = await plans_of(memory, lambda: memory.scheduled(5))

        assert plans == ["SEARCH conversations USING INDEX conversations_wakes_at (wakes_at>?)"]

    async def test_reads_no_logs(self, memory: SqliteStore) -> None:
        """Neither with a selection nor without one, in which case only `conversations` is scanned."""
        for selection in (
            {},
            {"limit": 5},
            {"owner": "anna"},
            {"metadata": {"a": 1}},
            {"state": "idle", "before": "walk"},
            {"role": "foreground"},
            {"role": "background", "works_for": "walk"},
        ):
            plans = await plans_of(memory, lambda selection=selection: memory.list(ConversationFilter(**selection)))

            assert plans
            assert not [plan for plan in plans if "events" in plan]
            assert {plan for plan in plans if plan.startswith("SCAN")} <= {"SCAN conversations"}

    async def test_of_ids_by_their_beginning_uses_the_index_of_ids(self, memory: SqliteStore) -> None:
        """Nothing is scanned."""
        plans = await plans_of(memory, lambda: memory.ids("wal"))

        assert "SEARCH conversations USING COVERING INDEX sqlite_autoindex_conversations_1 (id>? AND id<?)" in plans


class TestALoadedConversation:
    """What its context follows from is found without reading its log."""

    async def test_finds_the_changes_of_its_context_by_an_index(self, memory: SqliteStore) -> None:
        """Those of the policy, the schedule, the tools, and each detail: the title, the metadata, the system prompt."""
        plans = await plans_of(memory, lambda: memory.load("walk"))

        found = [plan for plan in plans if "events_context_changed" in plan]
        assert len(found) == 6
        assert not [plan for plan in plans if plan.startswith("SCAN")]
        assert all("(conversation=? AND type=?)" in plan for plan in found)

    async def test_reads_few_steps_however_often_they_were_changed(self, memory: SqliteStore) -> None:
        """The first step, the newest policy, schedule, title and metadata, and two changes of the tools. The newest
        step is one of them."""
        walk = Walk("changed").turn("tonight").request(DetailsChanged, metadata={"tenant": "a"})
        walk.request(ToolsChanged, tools=("a",), from_turn=2).turn("tomorrow")
        for number in range(30):
            walk.request(DetailsChanged, title=f"Dinner {number}")
            walk.request(ToolsChanged, tools=(f"tool {number}",), from_turn=3)
            walk.request(PolicyChanged, policy=walk.context.policy)
            walk.request(ScheduleChanged, schedule=Schedule(every=60.0 + number, task="Look."))
        await walk.into(memory)
        read: list[str] = []
        await memory.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(read.append))

        loaded = await memory.load("changed")

        assert loaded.context == walk.context
        wanted = [statement.partition("FROM")[2] for statement in read if "events.payload" in statement]
        assert sum(where.count(",") + 1 for where in wanted) == 7
