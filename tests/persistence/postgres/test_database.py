"""An open PostgreSQL database: transactions in threads, and what becomes of them when the server fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from turnwise.persistence.errors import StorageFailed, StoreConflict, StoreError
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.connection import PostgresDriver
from turnwise.persistence.postgres.database import PostgresDatabase


async def opened(url: str, connections: int = 4, *, read_only: bool = False) -> PostgresDatabase:
    """Open the database at this URL."""
    return await PostgresDatabase.open(PostgresAddress.of(url), connections=connections, read_only=read_only)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    """A new database, with a table of numbers."""
    database = await opened(postgres_url)
    await database.write(lambda driver: driver.execute("CREATE TABLE numbers (number int PRIMARY KEY)"))
    yield database
    await database.close()


def inserting(*numbers: int) -> Callable[[PostgresDriver], object]:
    """Work that stores numbers."""
    return lambda driver: driver.executemany("INSERT INTO numbers VALUES (%s)", [(number,) for number in numbers])


def stored(driver: PostgresDriver) -> list[int]:
    """Return the numbers that are stored."""
    return [number for (number,) in driver.execute("SELECT number FROM numbers ORDER BY number")]


def process(driver: PostgresDriver) -> int:
    """Return the number of the server's process."""
    found = driver.execute("SELECT pg_backend_pid()").fetchone()
    assert found is not None
    return int(found[0])


class TestTransactions:
    """All of it or nothing, and one moment for whoever reads."""

    async def test_what_fails_leaves_nothing(self, database: PostgresDatabase) -> None:
        """Also where a statement failed whose error somebody has swallowed."""

        def half(driver: PostgresDriver) -> None:
            inserting(1)(driver)
            raise StoreConflict("somebody else was first")

        def swallowing(driver: PostgresDriver) -> None:
            inserting(2)(driver)
            with pytest.raises(psycopg.Error):
                driver.execute("SELECT 1 / 0")

        with pytest.raises(StoreConflict):
            await database.write(half)
        with pytest.raises(StorageFailed):
            await database.write(swallowing)

        assert await database.read(stored) == []

    async def test_whoever_reads_sees_one_moment(self, database: PostgresDatabase) -> None:
        """Although others write between its statements."""
        has_read, has_written = threading.Event(), threading.Event()

        def twice(driver: PostgresDriver) -> tuple[list[int], list[int]]:
            first = stored(driver)
            has_read.set()
            has_written.wait(60)
            return first, stored(driver)

        reading = asyncio.ensure_future(database.read(twice))
        await asyncio.to_thread(has_read.wait, 60)
        await database.write(inserting(1))
        has_written.set()

        assert await reading == ([], [])

    async def test_whoever_reads_writes_nothing(self, database: PostgresDatabase) -> None:
        """The server refuses it."""
        with pytest.raises(StorageFailed, match="takes no writes"):
            await database.read(inserting(1))

    async def test_a_violated_constraint_is_the_caller_s(self, database: PostgresDatabase) -> None:
        """And the connection is used again."""
        before = await database.write(process)

        with pytest.raises(psycopg.IntegrityError):
            await database.write(inserting(1, 1))

        assert await database.read(process) == before

    async def test_the_work_of_a_cancelled_caller_is_done(self, database: PostgresDatabase) -> None:
        """It stops waiting, but a commit is never left in doubt."""
        has_begun, may_go_on, is_done = threading.Event(), threading.Event(), threading.Event()

        def slowly(driver: PostgresDriver) -> None:
            has_begun.set()
            may_go_on.wait(60)
            inserting(1)(driver)
            is_done.set()

        writing = asyncio.ensure_future(database.write(slowly))
        await asyncio.to_thread(has_begun.wait, 60)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        may_go_on.set()
        await asyncio.to_thread(is_done.wait, 60)
        await database.close()

        again = await opened(database_url(database))
        assert await again.read(stored) == [1]
        await again.close()

    async def test_many_at_once_use_as_many_connections_as_are_allowed(self, database: PostgresDatabase) -> None:
        """And those are used again."""
        processes = await asyncio.gather(*(database.write(process) for _ in range(40)))

        assert len(set(processes)) <= 4

    async def test_nothing_is_written_to_what_is_read_only(self, database: PostgresDatabase) -> None:
        """One sentence says so."""
        reader = await opened(database_url(database), read_only=True)

        with pytest.raises(StoreError, match=r"was opened for reading only\.$"):
            await reader.write(inserting(1))
        assert await reader.read(stored) == []
        await reader.close()


def database_url(database: PostgresDatabase) -> str:
    """Return a URL that leads to the same database."""
    parameters = psycopg.conninfo.conninfo_to_dict(database.address.conninfo)
    return (
        f"postgresql://{parameters['user']}@/{parameters['dbname']}?host={parameters['host']}&port={parameters['port']}"
    )
