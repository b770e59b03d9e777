"""The index follows the logs, without a share in any commit of a step."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Connection

from turnwise.persistence import SqliteStore, StorageFailed, examine
from turnwise.persistence.sqlite.database import Database, open_for_reading, open_for_writing
from turnwise.persistence.sqlite.file import Address, driver_of
from turnwise.persistence.sqlite.search import NAME
from turnwise.persistence.sqlite.thread import ConnectionThread, Worker
from turnwise.persistence.sqlite.writer import Writer, WritingThread
from turnwise.states import HistoryMessage, LlmResponse
from turnwise.states.values.acts import MemoryQuery, MemoryScope

from ...support.store_internals import query, statements_of
from ...support.walks import NOON, Walk

ANNA = MemoryScope("", "anna", 0)
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
