"""The file under the store: how it is opened, refused, locked, set up, and what happens when it goes away."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, StaticPool, create_engine
from sqlalchemy.exc import ProgrammingError

from turnwise import Engine
from turnwise.persistence.errors import FileGone, StorageFailed
from turnwise.persistence.opening import address_of
from turnwise.persistence.sql.statements import Statement
from turnwise.persistence.sqlite import database as database_module
from turnwise.persistence.sqlite import file, schema
from turnwise.persistence.sqlite.database import Database
from turnwise.persistence.sqlite.file import (
    ALREADY_OPEN,
    APPLICATION_ID,
    INTERVAL,
    REVISIONS,
    Address,
    configured,
    connect,
)
from turnwise.persistence.sqlite.schema import SCRIPTS, run_migrations
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import StoreError
from turnwise.testing import FunctionLlm

from ...support.walks import Walk

# --- The file under the store: how it is opened, refused, locked, set up and made.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database can be made."""
    return tmp_path / "dinner.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    """A new database, open."""
    database = await Database.open(path)
    yield database
    await database.close()


async def refusal(url: str | Path, *, read_only: bool = False) -> str:
    """The sentence with which the store refuses to open something."""
    with pytest.raises(StoreError) as refused:
        await SqliteStore.open(url, read_only=read_only)
    assert refused.value.sentence == str(refused.value)
    return refused.value.sentence


def pragma(name: str, connection: Connection) -> object:
    """A setting of a connection."""
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def schema_of(connection: Connection) -> set[str]:
    """All statements that make the tables and indexes of a database, without their blanks."""
    statements = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").scalars()
    return {re.sub(r"\s+", "", sql) for sql in statements}


def python(program: str, *arguments: object) -> str:
    """What another Python process prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def other_process(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python process, once it has said that it is ready; killed in the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


HOLD = """
import asyncio, sys
from turnwise.persistence.sqlite.store import SqliteStore

async def main():
    store = await SqliteStore.open(sys.argv[1])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
"""An engine that keeps a database open until it is killed, or whoever started it is gone."""

CRASH = """
import os, signal, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("UPDATE conversations SET owner = 'the last commit'")
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A writer that dies right after a commit and leaves a write-ahead log behind."""


def sqlite_locks(path: Path) -> int:
    """Return how many locks of SQLite this process holds on the file, as Linux lists them."""
    inode = path.stat().st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(kind == "POSIX" and file.endswith(f":{inode}") for _, kind, _, _, _, file, *_ in lines)


class TestAddresses:
    """A database is named by a path or a URL."""

    @pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+pysqlite:///{}"])
    async def test_a_path_and_a_url_name_the_same_file(self, form: str, path: Path) -> None:
        """`dinner.db` and `sqlite:///dinner.db` are one database."""
        store = await SqliteStore.open(form.format(path))

        await store.close()
        assert path.exists()

    async def test_a_path_is_taken_as_it_is_written(self, tmp_path: Path) -> None:
        """Signs that mean something in a URL mean nothing in a path."""
        odd = tmp_path / "what? 50% #1.db"

        await (await SqliteStore.open(odd)).close()

        assert odd.exists()

    async def test_a_relative_path_stays_where_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A change of the working directory does not move a database that is open."""
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        store = await SqliteStore.open("sqlite:///dinner.db")

        monkeypatch.chdir("elsewhere")
        await Walk().into(store)
        await store.close()

        assert [file.name for file in Path.cwd().iterdir()] == []

    @pytest.mark.parametrize("url", [":memory:", "sqlite://", "sqlite:///:memory:"])
    async def test_the_memory_holds_a_database_of_its_own(self, url: str, tmp_path: Path) -> None:
        """A database in memory leaves no file, and no two of them are the same."""
        one, other = await SqliteStore.open(url), await SqliteStore.open(url)

        await Walk().turn().into(one)

        assert (len(await one.list()), len(await other.list())) == (1, 0)
        await one.close()
        await other.close()

    @pytest.mark.parametrize(
        ("url", "sentence"),
        [
            (
                "mysql://me:secret@host/dinner",
                "Conversations are kept in SQLite files or in PostgreSQL; mysql is not supported.",
            ),
            (
                "sqlite://dinner.db",
                "sqlite://dinner.db does not name a file; a file is written like this: sqlite:///dinner.db",
            ),
            ("sqlite:///", "sqlite:/// does not name a file; a file is written like this: sqlite:///dinner.db"),
            ("://me:secret@", "The address of the database is neither a path nor a URL."),
        ],
    )
    async def test_any_other_address_is_refused(self, url: str, sentence: str) -> None:
        """One sentence, without the password that may stand in it (P33)."""
        assert await refusal(url) == sentence


class TestWhatCannotBeOpened:
    """Each in one sentence, and nothing is left behind (P33)."""

    async def test_a_file_that_is_no_database(self, path: Path) -> None:
        """A text file stays the text file it is, and nothing new stands beside it."""
        path.write_text("Dear diary, " * 100)

        sentence = await refusal(path)

        assert sentence == f"{path} is not a SQLite database."
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        assert path.read_text() == "Dear diary, " * 100

    @pytest.mark.parametrize("application", [0, 0x4F54_4852])
    @pytest.mark.parametrize("read_only", [False, True])
    async def test_the_database_of_another_program(self, application: int, read_only: bool, path: Path) -> None:
        """It is recognised before a byte of it is changed, whether or not it has an application id."""
        with closing(sqlite3.connect(path)) as theirs:
            theirs.execute(f"PRAGMA application_id = {application}")
            theirs.execute("CREATE TABLE recipes (name)")
        before = path.read_bytes()

        sentence = await refusal(path, read_only=read_only)

        assert sentence == f"{path} is the database of another program."
        assert path.read_bytes() == before
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_a_database_from_the_future(self, read_only: bool, path: Path) -> None:
        """What a newer turnwise wrote is not guessed at."""
        await (await SqliteStore.open(path)).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as future:
            future.execute("UPDATE alembic_version SET version_num = '9999'")

        sentence = await refusal(path, read_only=read_only)

        assert sentence == f"{path} was written by a newer turnwise; update turnwise to open it."

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_links_that_go_in_a_circle(self, read_only: bool, path: Path) -> None:
        """They lead to no file, which is a `StoreError` like any other address that cannot be used."""
        path.symlink_to("other.db")
        path.with_name("other.db").symlink_to(path.name)

        sentence = await refusal(path, read_only=read_only)

        if sys.version_info < (3, 13):
            assert sentence == f"{path} does not lead to a file: its symbolic links go in a circle."

    async def test_a_folder(self, tmp_path: Path) -> None:
        """A folder is no database, to write or to read."""
        sentences = {await refusal(tmp_path), await refusal(tmp_path, read_only=True)}

        assert sentences == {f"{tmp_path} is a folder, not a database."}

    async def test_a_file_in_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        """No folder is made: it is more likely a slip of the pen."""
        missing = tmp_path / "nowhere" / "dinner.db"

        assert await refusal(missing) == f"The folder of {missing} does not exist."
        assert not missing.parent.exists()

    async def test_a_file_below_a_file(self, path: Path) -> None:
        """A file is no folder."""
        path.touch()

        sentence = await refusal(path / "dinner.db")

        assert sentence == f"{path / 'dinner.db'} cannot be created: its folder does not allow it."

    async def test_a_missing_file_to_read(self, path: Path) -> None:
        """Who only wants to read makes no file."""
        assert await refusal(path, read_only=True) == f"There is no database to read: {path}."
        assert not path.exists()

    async def test_an_empty_file_to_read(self, path: Path) -> None:
        """A file in which no tables are yet is left as it is."""
        path.touch()

        sentence = await refusal(path, read_only=True)

        assert sentence == f"{path} is not ready to be read; an engine that opens it once makes it so."

    async def test_memory_to_read(self) -> None:
        """There is nothing in a new memory that could be read."""
        assert await refusal(":memory:", read_only=True) == "A new database in memory holds nothing that could be read."

    async def test_a_file_that_another_program_holds_locked(self, path: Path) -> None:
        """After the time to wait is over, it is said who is in the way."""
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageFailed) as failed:
                await SqliteStore.open(path, busy_timeout=0.01)

        assert failed.value.sentence == f"{path} cannot be used now: another program holds it locked."

    async def test_what_could_not_be_opened_is_not_locked(self, path: Path) -> None:
        """Once the cause is gone the same process opens it."""
        path.write_text("Dear diary, " * 100)
        await refusal(path)
        path.unlink()

        await (await SqliteStore.open(path)).close()


class TestTheLock:
    """One engine per database file (P42)."""

    async def test_a_second_engine_is_refused(self, path: Path) -> None:
        """Also in the same process, and also by another name of the file."""
        link = path.with_name("link.db")
        link.symlink_to(path)
        store = await SqliteStore.open(path)

        assert await refusal(path) == f"{path} {ALREADY_OPEN}"
        assert await refusal(link) == f"{link} {ALREADY_OPEN}"
        await store.close()

    @pytest.mark.slow
    async def test_an_engine_in_another_process_is_refused(self, path: Path) -> None:
        """P42: the second one is refused with one sentence; commands that only read work."""
        await (await SqliteStore.open(path)).close()

        with other_process(HOLD, path):
            sentence = await refusal(path)
            reading = await SqliteStore.open(path, read_only=True)
            conversations = await reading.list()
            await reading.close()

        assert sentence == f"{path} {ALREADY_OPEN}"
        assert conversations == ()

    async def test_closing_releases_it(self, path: Path) -> None:
        """After `close` the next engine may open the file."""
        await (await SqliteStore.open(path)).close()

        await (await SqliteStore.open(path)).close()

    @pytest.mark.slow
    async def test_death_releases_it(self, path: Path) -> None:
        """A process that was killed holds nothing, whatever it left lying around."""
        with other_process(HOLD, path) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()

        await (await SqliteStore.open(path)).close()

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="The lock on the database itself is one of Linux.")
    async def test_deleting_the_file_beside_it_lets_nobody_in(self, path: Path) -> None:
        """The database itself is locked, too, whoever holds it: another process, or this one."""
        lock_file = Path(f"{path}.lock")
        with other_process(HOLD, path):
            lock_file.unlink()
            assert await address_of(path).is_in_use()
            from_outside = await refusal(path)
        store = await SqliteStore.open(path)
        lock_file.unlink()
        within = await refusal(path)
        assert await address_of(path).is_in_use()
        await store.close()

        assert from_outside == within == f"{path} {ALREADY_OPEN}"
        assert not await address_of(path).is_in_use()

    @pytest.mark.skipif(sys.platform != "linux", reason="The lock on the database itself is one of Linux.")
    async def test_a_reader_keeps_the_locks_of_sqlite(self, path: Path) -> None:
        """Closing a descriptor of the file would drop SQLite's locks of the whole process: a reader that stays open
        while an engine closes, and one that is refused, still has its own."""
        store = await SqliteStore.open(path)
        reading = await SqliteStore.open(path, read_only=True)
        await refusal(path)
        with_engine = sqlite_locks(path)
        await store.close()
        alone = sqlite_locks(path)
        await reading.close()

        assert min(with_engine, alone) >= 1
        assert sqlite_locks(path) == 0
        assert not [each for each in Path("/proc/self/fd").iterdir() if each.exists() and each.resolve() == path]

    async def test_two_databases_in_memory_do_not_meet(self) -> None:
        """There is no file, so there is nothing to lock."""
        stores = [await SqliteStore.open(":memory:") for _ in range(2)]

        for store in stores:
            await store.close()


class TestSettings:
    """Each was measured to matter; none is SQLite's default, or its driver's."""

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("journal_mode", "wal"),
            ("synchronous", 2),  # FULL
            ("foreign_keys", 1),
            ("busy_timeout", 5000),
            ("secure_delete", 1),
            ("application_id", APPLICATION_ID),
        ],
    )
    async def test_both_connections_are_set(self, setting: str, value: object, database: Database) -> None:
        """The one that writes and the one that reads."""
        found = [
            await database.write(lambda connection: pragma(setting, connection)),
            await database.read(lambda connection: pragma(setting, connection)),
        ]

        assert found == [value, value]

    async def test_all_files_are_for_their_owner_alone(self, path: Path) -> None:
        """What people say is nobody else's business: 0600, also for the files beside the database."""
        store = await SqliteStore.open(path)
        await Walk().into(store)

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

        assert modes == {f"dinner.db{ending}": 0o600 for ending in ("", "-wal", "-shm", ".lock")}
        await store.close()

    async def test_no_update_is_lost(self, database: Database, path: Path) -> None:
        """Two writers that read, add one and write 200 times each come to 400: a write takes its lock when it begins.

        The driver's own transaction control loses most of them, and a lock taken late fails without waiting.
        """
        await database.write(lambda connection: connection.exec_driver_sql("CREATE TABLE counter AS SELECT 0 AS n"))

        def add_one(connection: Connection) -> None:
            n = connection.exec_driver_sql("SELECT n FROM counter").scalar_one()
            connection.exec_driver_sql("UPDATE counter SET n = ?", (n + 1,))

        def add_beside_it() -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                for _ in range(200):
                    other.execute("BEGIN IMMEDIATE")
                    (n,) = other.execute("SELECT n FROM counter").fetchone()
                    other.execute("UPDATE counter SET n = ?", (n + 1,))
                    other.execute("COMMIT")

        beside = asyncio.create_task(asyncio.to_thread(add_beside_it))
        for _ in range(200):
            await database.write(add_one)
        await beside

        total = await database.read(lambda connection: connection.exec_driver_sql("SELECT n FROM counter").scalar())
        assert total == 400


class TestWriting:
    """One thread writes, and what it does is done whole or not at all."""

    async def test_work_that_raises_is_undone(self, database: Database) -> None:
        """Its first half is not there either."""

        def half(connection: Connection) -> None:
            connection.exec_driver_sql("CREATE TABLE half (n)")
            raise ValueError("half way")

        with pytest.raises(ValueError, match="half way"):
            await database.write(half)

        assert "CREATETABLEhalf(n)" not in await database.read(schema_of)

    async def test_who_reads_waits_for_no_writer(self, database: Database, path: Path) -> None:
        """While another program writes, reading goes on."""
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            assert await database.read(lambda connection: pragma("user_version", connection)) == 0

    async def test_who_reads_cannot_write(self, database: Database) -> None:
        """The reading connection is opened for reading only, so a slip cannot change anything."""
        with pytest.raises(StorageFailed) as failed:
            await database.read(lambda connection: connection.exec_driver_sql("CREATE TABLE slip (n)"))

        assert failed.value.sentence.endswith("cannot be used now: it may only be read.")

    async def test_closed_is_closed(self, path: Path) -> None:
        """To close twice is harmless; to go on afterwards is an error with a sentence."""
        store = await SqliteStore.open(path)
        await store.close()
        await store.close()

        with pytest.raises(StoreError) as closed:
            await store.list()

        assert closed.value.sentence == f"{path} is closed."

    @pytest.mark.slow
    def test_what_nobody_closed_makes_no_noise(self, path: Path) -> None:
        """A program that ends without closing its store loses nothing, and nobody sees a traceback (P33)."""
        program = (
            "import asyncio, sys; from turnwise.persistence.sqlite.store import SqliteStore;"
            "asyncio.run(SqliteStore.open(sys.argv[1])); sys.exit('no table is free')"
        )

        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)

        assert done.stderr == "no table is free\n"

    async def test_closing_leaves_one_file(self, path: Path) -> None:
        """The write-ahead log goes into the file, so that a copy of the file is a copy of everything."""
        store = await SqliteStore.open(path)
        await Walk().into(store)

        await store.close()

        assert sorted(file.name for file in path.parent.iterdir()) == ["dinner.db", "dinner.db.lock"]


class TestCompiledStatements:
    """What SQLAlchemy has compiled for one database of a process serves the next one."""

    async def test_a_list_compiles_nothing_that_an_earlier_one_has(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second list selects by other values, and of another database."""
        first = await SqliteStore.open(path)
        await first.list(ConversationFilter(role="sub_agent", state="idle", limit=3, metadata={"a": 1}))
        await first.close()
        compiled: list[object] = []
        monkeypatch.setattr(Statement, "of", compiled.append)

        second = await SqliteStore.open(path.with_name("supper.db"))
        found = await second.list(ConversationFilter(role="sub_agent", state="failed", limit=5, metadata={"b": 2}))
        await second.close()

        assert (found, compiled) == ((), [])

    async def test_a_connection_that_was_closed_stays_closed(self, path: Path) -> None:
        """The engine that connections share has no other connection to give."""
        await (await SqliteStore.open(path)).close()
        driver = connect(Address.of(path), "rw", 1.0)
        connection = configured(driver, "rw")
        driver.close()

        for _ in range(2):
            with pytest.raises(ProgrammingError, match="closed database"):
                connection.exec_driver_sql("SELECT 1")


class TestReadingOnly:
    """Commands that look at a database neither wait for an engine nor change what it left."""

    async def test_beside_a_running_engine(self, path: Path) -> None:
        """It sees each commit, from the moment it is made."""
        writing = await SqliteStore.open(path)
        reading = await SqliteStore.open(path, read_only=True)

        log = await Walk().into(writing)
        before = len(await reading.entries("walk"))
        await log.append(*Walk().say().steps[1])
        after = len(await reading.entries("walk"))

        assert (before, after) == (1, 2)
        await reading.close()
        await writing.close()

    @pytest.mark.slow
    async def test_after_a_crash(self, path: Path) -> None:
        """What was committed is seen, and every byte of the file and its write-ahead log stays as the crash left it."""
        store = await SqliteStore.open(path)
        await Walk().into(store)
        await store.close()
        assert subprocess.run([sys.executable, "-c", CRASH, path]).returncode == -signal.SIGKILL
        wal = path.with_name("dinner.db-wal")
        before = path.read_bytes(), wal.read_bytes()

        reading = await Database.open(path, read_only=True)
        owner = await reading.read(
            lambda connection: connection.exec_driver_sql("SELECT owner FROM conversations").scalar()
        )
        await reading.close()

        assert owner == "the last commit"
        assert b"the last commit" in before[1]
        assert (path.read_bytes(), wal.read_bytes()) == before

    async def test_nothing_can_be_written(self, path: Path) -> None:
        """A log that was loaded for reading takes no step."""
        writing = await SqliteStore.open(path)
        await Walk().into(writing)
        await writing.close()
        reading = await SqliteStore.open(path, read_only=True)
        loaded = await reading.load("walk")

        with pytest.raises(StoreError) as refused:
            await loaded.log.append(*Walk().say().steps[1])

        assert refused.value.sentence == f"{path} was opened for reading only."
        await reading.close()


class TestCopies:
    """What the documentation says on backups."""

    async def test_a_copy_without_the_log_lacks_what_is_in_it(self, path: Path, tmp_path: Path) -> None:
        """It looks whole, and ends earlier. The copy that SQLite makes beside the engine has everything, and so has the
        file once the engine has closed."""
        async with Engine.open(path, model=FunctionLlm(lambda _: "Yes.")) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            alone, whole, closed = (tmp_path / f"{name}.db" for name in ("alone", "whole", "closed"))
            shutil.copy(path, alone)
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(whole)) as target:
                source.backup(target)
        shutil.copy(path, closed)

        assert [await stored_in(each) for each in (alone, whole, closed)] == [0, 1, 1]


async def stored_in(path: Path) -> int:
    """Return how many conversations an engine finds in a copy."""
    async with Engine.open(path) as engine:
        return len(await engine.list())


PLANTED = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("conversations", sa.Column("mood", sa.Text()))
"""
"""The migration of a version to come."""


@pytest.fixture
def older(path: Path) -> Path:
    """A database that holds a conversation, as this version writes it."""

    async def write() -> None:
        store = await SqliteStore.open(path)
        await Walk("kept").turn("hello").into(store)
        await store.close()

    asyncio.run(write())
    return path


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: Path) -> pytest.MonkeyPatch:
    """A version to come: its tables have a migration more. `undo` goes back to this one."""
    scripts = shutil.copytree(SCRIPTS, tmp_path / "migrations")
    (scripts / "versions" / "0002_moods.py").write_text(PLANTED)
    monkeypatch.setattr(schema, "SCRIPTS", scripts)
    monkeypatch.setattr(file, "REVISIONS", (*REVISIONS, "0002"))
    for module in (schema, database_module):
        monkeypatch.setattr(module, "HEAD", "0002")
    return monkeypatch


async def kept_in(path: Path, *, read_only: bool = False) -> list[str]:
    """The conversations of a database, once it is open."""
    store = await SqliteStore.open(path, read_only=read_only)
    try:
        return [summary.id for summary in await store.list()]
    finally:
        await store.close()


def tables_of(path: Path) -> tuple[str, bool]:
    """The revision of a database, and whether it has the column of the version to come."""
    with closing(sqlite3.connect(path)) as connection:
        ((revision,),) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(conversations)")]
        return revision, "mood" in columns


class TestMigrations:
    """A database that an earlier version wrote gets the tables of this one when it is opened."""

    async def test_it_keeps_what_it_holds(self, older: Path, newer: pytest.MonkeyPatch) -> None:
        """Only what the migration changes is changed, once."""
        assert tables_of(older) == ("0001", False)
        for _ in range(2):
            assert await kept_in(older) == ["kept"]
            assert tables_of(older) == ("0002", True)
        assert await kept_in(older, read_only=True) == ["kept"]

    async def test_to_read_it_is_not_enough(self, older: Path, newer: pytest.MonkeyPatch) -> None:
        """That changes nothing, so it cannot be read before."""
        sentence = await refusal(older, read_only=True)

        assert sentence == f"{older} is not ready to be read; an engine that opens it once makes it so."
        assert tables_of(older) == ("0001", False)

    async def test_the_earlier_version_refuses_it_afterwards(self, older: Path, newer: pytest.MonkeyPatch) -> None:
        """To write and to read."""
        await kept_in(older)
        newer.undo()

        for read_only in (False, True):
            sentence = await refusal(older, read_only=read_only)
            assert sentence == f"{older} was written by a newer turnwise; update turnwise to open it."

    @pytest.mark.slow
    @pytest.mark.usefixtures("newer")
    async def test_databases_can_be_migrated_at_once(self) -> None:
        """Alembic works for one thread at a time; each database gets its own tables, and nothing else."""

        def migrate() -> set[str]:
            with create_engine("sqlite://", poolclass=StaticPool).connect() as connection:
                with connection.begin():
                    connection.exec_driver_sql("CREATE TABLE conversations (key INTEGER PRIMARY KEY)")
                    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
                    connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0001')")
                run_migrations(connection)
                return schema_of(connection)

        schemas = await asyncio.gather(*(asyncio.to_thread(migrate) for _ in range(8)))

        assert len({frozenset(schema) for schema in schemas}) == 1
        assert any("moodTEXT" in statement for statement in schemas[0])

    def test_the_list_of_revisions_is_the_list_of_files(self) -> None:
        """A database is recognised without alembic, by a list that must not lag behind."""
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.set_main_option("path_separator", "os")

        scripts = ScriptDirectory.from_config(config).walk_revisions()

        assert [script.revision for script in scripts] == list(reversed(REVISIONS))

    @pytest.mark.slow
    async def test_no_database_that_needs_no_migration_loads_alembic(self, path: Path) -> None:
        """Neither a new one nor one that is up to date."""
        loaded = python(
            "import asyncio, sys; from turnwise.persistence.sqlite.store import SqliteStore;"
            "asyncio.run(SqliteStore.open(sys.argv[1])); print(*sys.modules)",
            path,
        )

        assert "sqlalchemy" in loaded.split()
        assert "alembic" not in loaded.split()


# --- A database whose files are deleted, renamed or replaced while an engine has them open: it stops, and acknowledges
# nothing that would be lost.


def delete(database: Path) -> None:
    """Somebody tidies up."""
    database.unlink()


def rename(database: Path) -> None:
    """Somebody puts it elsewhere."""
    database.rename(database.with_name("elsewhere.db"))


def replace(database: Path) -> None:
    """Somebody puts a copy in its place, as tools that restore or synchronise do."""
    copy = database.with_name("copy.db")
    shutil.copy(database, copy)
    copy.replace(database)


def delete_log(database: Path) -> None:
    """Somebody takes the write-ahead log for a leftover."""
    database.with_name(f"{database.name}-wal").unlink()


def delete_index(database: Path) -> None:
    """Or its index."""
    database.with_name(f"{database.name}-shm").unlink()


def delete_folder(database: Path) -> None:
    """Or all of it."""
    shutil.rmtree(database.parent)


WAYS = [delete, rename, replace, delete_log, delete_index, delete_folder]


@pytest.fixture
def open_files_database(tmp_path: Path) -> Path:
    """A database in a folder of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "conversations.db"


@pytest.mark.parametrize("happens", WAYS)
async def test_an_engine_stops(open_files_database: Path, happens: Callable[[Path], None]) -> None:
    """The message after a pause is refused with a typed error of one sentence, and so is every later one, also of other
    conversations. Closing the engine raises nothing more."""
    async with Engine.open(open_files_database, model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = await engine.create()
        other = await engine.create()
        await conversation.send("Before")
        happens(open_files_database)
        time.sleep(INTERVAL)

        with pytest.raises(FileGone) as gone:
            await conversation.send("After")
        for later in (conversation, other):
            with pytest.raises(StoreError):
                await later.send("Later")
        with pytest.raises(StoreError):
            await engine.create()

    assert str(gone.value).startswith(f"{open_files_database}, or a file beside it, was moved, deleted or replaced")


async def test_little_is_lost_while_messages_keep_coming(open_files_database: Path) -> None:
    """Without any pause: of what was acknowledged after the file went, at most that of a tenth of a second and one step
    is missing."""
    store = await SqliteStore.open(open_files_database)
    walk = Walk()
    log = await walk.into(store)
    open_files_database.unlink()
    went, last = time.monotonic(), 0.0
    with pytest.raises(FileGone):
        while True:
            walk.turn("tonight")
            for event, step in walk.steps[-4:]:
                begun = time.monotonic()
                await log.append(event, step)
                last = begun - went
    await store.close()

    assert last <= INTERVAL


@pytest.mark.parametrize("happens", WAYS)
async def test_a_store_says_so_when_it_closes(open_files_database: Path, happens: Callable[[Path], None]) -> None:
    """Nothing was stored since, so nobody was told before; what was stored before may be lost."""
    store = await SqliteStore.open(open_files_database)
    await Walk().into(store)
    happens(open_files_database)

    with pytest.raises(FileGone):
        await store.close()
    await store.close()


async def test_what_other_programs_may_do_is_no_fault(open_files_database: Path) -> None:
    """They read the file, make checkpoints and copies; and the engine itself deletes, which rewrites the file."""
    store = await SqliteStore.open(open_files_database)
    log = await Walk("first").into(store)
    reader = await SqliteStore.open(open_files_database, read_only=True)
    assert await reader.ids() == ("first",)
    await reader.close()
    shutil.copy(open_files_database, open_files_database.with_name("copy.db"))
    await Walk("second").into(store)
    await store.delete("second")
    time.sleep(INTERVAL)
    walk = Walk("first").say("Hello")

    await log.append(*walk.steps[-1])
    await store.close()

    again = await SqliteStore.open(open_files_database)
    assert len(await again.entries("first")) == 2
    await again.close()
