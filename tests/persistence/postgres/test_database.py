"""An open PostgreSQL database: transactions in threads, and what becomes of them when the server fails."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from turnwise.persistence.errors import StorageFailed, StoreConflict, StoreError
from turnwise.persistence.postgres import connection as connection_module
from turnwise.persistence.postgres import database as database_module
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.connection import PostgresDriver
from turnwise.persistence.postgres.database import PostgresDatabase
from turnwise.testing.postgres_server import PostgresServer, ShutdownMode


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

    @pytest.mark.parametrize("value", [2**31, 2**63, 10**40])
    async def test_a_number_without_a_place(self, database: PostgresDatabase, value: int) -> None:
        """It is the caller's error, and not one of the server that passes."""
        with pytest.raises(StoreError, match="PostgreSQL has no place for") as failed:
            await database.write(inserting(value))

        assert not isinstance(failed.value, StorageFailed)
        assert await database.read(stored) == []

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


@pytest.mark.slow
class TestFailures:
    """What fails is a `StorageFailed` within bounds, and goes on when the cause is gone."""

    @pytest.fixture
    async def fragile(self, own_postgres: PostgresServer) -> AsyncIterator[PostgresDatabase]:
        """A database on a server of the test's own."""
        database = await opened(own_postgres.url("postgres"))
        await database.write(lambda driver: driver.execute("CREATE TABLE numbers (number int PRIMARY KEY)"))
        yield database
        await database.close()

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    async def test_a_restart_between_transactions_is_not_noticed(
        self, own_postgres: PostgresServer, fragile: PostgresDatabase, mode: ShutdownMode
    ) -> None:
        """All connections are lost, and replaced when the next transaction begins."""
        await asyncio.gather(*(fragile.write(inserting(number)) for number in range(20)))
        own_postgres.restart(mode)

        await fragile.write(inserting(20))

        assert await fragile.read(stored) == list(range(21))

    async def test_a_connection_that_is_killed_in_a_transaction(self, fragile: PostgresDatabase) -> None:
        """Nothing of it is stored, and the same work can be done again."""

        def killed(driver: PostgresDriver) -> None:
            inserting(1)(driver)
            driver.execute("SELECT pg_terminate_backend(pg_backend_pid())")

        with pytest.raises(StorageFailed, match=r"cannot be used now: the connection was lost\.$"):
            await fragile.write(killed)

        await fragile.write(inserting(1))
        assert await fragile.read(stored) == [1]

    async def test_a_server_that_is_down(self, own_postgres: PostgresServer, fragile: PostgresDatabase) -> None:
        """Each transaction fails at once, until it is there again."""
        own_postgres.shut_down("immediate")

        for _ in range(3):
            with pytest.raises(StorageFailed, match="cannot be opened now"):
                await fragile.write(inserting(1))

        own_postgres.resume()
        await fragile.write(inserting(1))
        assert await fragile.read(stored) == [1]

    async def test_a_server_that_stands_still(
        self, own_postgres: PostgresServer, fragile: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It answers nothing and refuses nothing: it is not waited for without a bound."""
        monkeypatch.setattr(connection_module, "LATEST_ANSWER", 1.0)
        monkeypatch.setattr(database_module, "LOOK", 0.1)
        impatient = await opened(own_postgres.url("postgres"))

        def standing_still(driver: PostgresDriver) -> None:
            stopped.append(driver.process_id)
            os.kill(driver.process_id, signal.SIGSTOP)
            inserting(1)(driver)

        stopped: list[int] = []
        with pytest.raises(StorageFailed, match="the connection was lost"):
            await impatient.write(standing_still)
        os.kill(stopped[0], signal.SIGCONT)

        await fragile.write(inserting(2))
        assert 2 in await fragile.read(stored)
        await impatient.close()

    async def test_when_all_connections_are_in_use(
        self, fragile: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever waits too long is told so, and those in use are not disturbed."""
        all_are_used, may_go_on = threading.Barrier(5), threading.Event()

        def slowly(driver: PostgresDriver) -> int:
            all_are_used.wait(60)
            may_go_on.wait(60)
            return process(driver)

        using = [asyncio.ensure_future(fragile.write(slowly)) for _ in range(4)]
        await asyncio.to_thread(all_are_used.wait, 60)
        monkeypatch.setattr(database_module, "PATIENCE", 0.1)
        monkeypatch.setattr(database_module, "LOOK", 0.1)
        with pytest.raises(StorageFailed, match=r"cannot be used now: all 4 connections are in use\.$"):
            await fragile.write(inserting(1))
        may_go_on.set()

        assert len({*await asyncio.gather(*using)}) == 4
        assert await fragile.read(stored) == []

    async def test_when_the_server_has_no_connection_left(self, own_postgres: PostgresServer) -> None:
        """Its sentence is in ours."""
        with psycopg.connect(own_postgres.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE many LOGIN CONNECTION LIMIT 0")

        with pytest.raises(StorageFailed, match=r'for role "many"; a process takes up to database_connections and 2'):
            await opened(own_postgres.url("postgres", user="many"))

    async def test_a_lock_that_another_program_holds(
        self, own_postgres: PostgresServer, fragile: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is waited for, but not for ever."""
        monkeypatch.setitem(connection_module.LIMITS, "lock_timeout", 0.1)
        impatient = await opened(own_postgres.url("postgres"))
        with psycopg.connect(own_postgres.url("postgres")) as other:
            other.execute("LOCK TABLE numbers")

            with pytest.raises(StorageFailed, match=r"cannot be used now: another program holds it locked\.$"):
                await impatient.write(inserting(1))

        await fragile.write(inserting(1))
        await impatient.close()

    async def test_a_transaction_whose_process_stands_still(
        self, own_postgres: PostgresServer, fragile: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server ends it, since others may wait for what it has locked."""
        monkeypatch.setitem(connection_module.LIMITS, "idle_in_transaction_session_timeout", 0.1)
        impatient = await opened(own_postgres.url("postgres"))
        is_over = threading.Event()

        def standing_still(driver: PostgresDriver) -> None:
            inserting(1)(driver)
            number = driver.process_id
            with psycopg.connect(own_postgres.url("postgres"), autocommit=True) as other:
                while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (number,)).fetchone():
                    is_over.wait(0.05)
            stored(driver)

        with pytest.raises(StorageFailed, match="the connection was lost"):
            await impatient.write(standing_still)

        assert await fragile.read(stored) == []
        await impatient.close()

    async def test_closing_does_not_wait_for_a_dead_server(
        self, own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is under way is broken off."""
        monkeypatch.setattr(database_module, "CLOSING", 0.1)
        database = await opened(own_postgres.url("postgres"))
        number = await database.write(process)
        os.kill(number, signal.SIGSTOP)
        waiting = asyncio.ensure_future(database.write(process))
        await asyncio.sleep(0)

        await database.close()

        os.kill(number, signal.SIGCONT)
        with pytest.raises(StorageFailed):
            await waiting


class TestClosing:
    """What was handed in is done; nothing is taken any more."""

    async def test_afterwards_nothing_is_done(self, database: PostgresDatabase) -> None:
        """A second call does nothing."""
        await database.close()
        await database.close()

        with pytest.raises(StoreError, match=r"is closed\.$"):
            await database.read(stored)
        with pytest.raises(StoreError, match=r"is closed\.$"):
            await database.write(inserting(1))
