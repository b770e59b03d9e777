"""The file of a database: where it is, whose it is, who may open it, and how a connection to it is set up.

The defaults of SQLite and of its Python driver serve other needs. Here every connection checks foreign keys, waits for
a locked database, syncs to the disk at each commit, and overwrites what it deletes, so what was committed is still
there after a power cut. The driver's own transaction control is switched off: it begins transactions late and lets two
writers overwrite each other's work. A transaction that writes takes the write lock when it begins.

All connections of a process share two engines of SQLAlchemy, one that writes and one that reads. An engine keeps the
statements that it has compiled, and to make one and to compile the first statements took a third of the time that it
takes to open a database.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import RLock
from typing import Literal, Self

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from ...states.errors import InvalidInput, StoreError
from ..errors import FileGone, StorageFailed

_PRAGMAS = ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON")

Mode = Literal["rw", "ro", "immutable"]
"""How a file is opened. One that is immutable is read without a write-ahead log and without locks."""


_PARAMETERS: dict[Mode, str] = {"rw": "mode=rw", "ro": "mode=ro", "immutable": "mode=ro&immutable=1"}


def connect(address: Address, mode: Mode, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, which must exist, without reading it. The connection is for one thread at a time.

    `busy_timeout` is how many seconds to wait for a lock that another program holds.
    """
    # The garbage collector closes a store that nobody closed, in whatever thread it runs.
    target = MEMORY if address.path is None else f"{address.path.as_uri()}?{_PARAMETERS[mode]}"
    connection = sqlite3.connect(
        target, timeout=busy_timeout, isolation_level=None, check_same_thread=False, uri=True, factory=_Connection
    )
    connection.text_factory = _text
    if address.path is not None:
        connection.note_file(address.path)
    return connection


class _Connection(sqlite3.Connection):
    """A connection that says when it is closed: SQLite's locks need that no descriptor of the file is closed before."""

    _closed: Callable[[], object] | None = None

    def note_file(self, path: Path) -> None:
        """Note which file this is a connection to."""
        self._closed = weakref.finalize(self, _LOCKS.connected(path))
        self._closed.atexit = False

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        super().close()
        if self._closed is not None:
            self._closed()


def _text(raw: bytes) -> str:
    """Decode a text, also one that damage has made invalid, so that the damaged step can be named."""
    return raw.decode(errors="surrogateescape")


def configured(connection: sqlite3.Connection, mode: Mode) -> Connection:
    """Configure a connection and return it as one of SQLAlchemy. Closing the result closes the connection.

    Error messages leave out the parameters of statements, because these are what users said.
    """
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    if mode == "rw":
        connection.execute("PRAGMA journal_mode = WAL")
    _given.connection = connection
    return _engine(mode).connect()


class _Given(threading.local):
    """The connection that SQLAlchemy is to use next in this thread."""

    connection: sqlite3.Connection | None = None

    def take(self) -> sqlite3.Connection:
        """Return the connection, once: SQLAlchemy asks again only for one that was closed, which stays closed."""
        connection, self.connection = self.connection, None
        if connection is None:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        return connection


_given = _Given()


@cache
def _engine(mode: Mode) -> Engine:
    engine = create_engine("sqlite://", creator=_given.take, poolclass=NullPool, hide_parameters=True)
    begin = "BEGIN IMMEDIATE" if mode == "rw" else "BEGIN"
    event.listen(engine, "begin", lambda connection: driver_of(connection).execute(begin))
    return engine


MEMORY = ":memory:"


@dataclass(frozen=True)
class Address:
    """The `name` of a database as its user wrote it, and the `path` of its file; None is the memory of this process.

    It is given as a path or a URL, and is resolved to the file once, so that a change of the working directory or a
    symbolic link does not make two databases of one.
    """

    name: str
    path: Path | None = None

    @classmethod
    def of(cls, url: str | Path) -> Self:
        """Parse a path (`dinner.db`), a URL (`sqlite:///dinner.db`), or `:memory:` or `sqlite://` for the memory.

        Raises `StoreError` for any other URL, and for what cannot be the name of a file.
        """
        if not _can_be_a_name(url):
            raise StoreError("The address of the database is neither a path nor a URL.")
        database = _database_of(url) if isinstance(url, str) and "://" in url else url
        if database == MEMORY:
            return cls("The database in memory")
        try:
            return cls(str(database), Path(database).resolve())
        except (OSError, RuntimeError) as error:  # Python up to 3.12 raises RuntimeError for a loop of symbolic links
            raise StoreError(f"{database} does not lead to a file: its symbolic links go in a circle.") from error


def _can_be_a_name(url: object) -> bool:
    """Whether this can be the name of a file."""
    if not isinstance(url, str | Path) or not str(url):
        return False
    try:
        Path(url).stat()
    except (OSError, ValueError) as error:
        return isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG
    return True


def _database_of(text: str) -> str:
    """Return the part of a SQLite URL that names the database. Other URLs may hold a password, so no error repeats
    one."""
    url = _parsed(text)
    if url.get_backend_name() != "sqlite":
        raise StoreError(
            f"Conversations are kept in SQLite files or in PostgreSQL; {url.get_backend_name()} is not supported."
        )
    if url.host or url.query or url.database == "":
        raise StoreError(f"{text} does not name a file; a file is written like this: sqlite:///dinner.db")
    return url.database or MEMORY


def _parsed(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError("The address of the database is neither a path nor a URL.") from None


if sys.platform == "linux":
    import fcntl

_LOCK_TIMEOUT = 0.2
"""Seconds to wait for the lock before an engine is refused. Chosen so that it is longer than `in_use` holds it."""

_LOCK_BYTE = 0x4000_1000
"""The byte of a database that is locked. SQLite locks 512 bytes from 0x4000_0000 on; a lock needs no byte to exist."""

_Inode = tuple[int, int]
"""The device and the number of a file, which stay while it is renamed or deleted."""


class _DatabaseLocks:
    """The locks that this process holds on database files, and the descriptors that must stay open for them.

    They let one engine at a time in: two engines on one file would both act on the same conversations. The operating
    system holds the locks, so they end with the process that took them, however that process ends. One is on an empty
    file beside the database, which stays. Whoever deletes that file would let two engines in, so on Linux another one
    is on a byte of the database itself.

    SQLite locks bytes of its own in that file, and the operating system drops all of those that a process has when it
    closes any descriptor of the file. So the descriptor that holds our lock stays open as long as this process has a
    connection to the file. A forked child closes the descriptors that it inherits, which gives nothing of its parent's
    up.
    """

    def __init__(self) -> None:
        self._guard = RLock()
        self._held: set[_Inode] = set()
        self._descriptors: dict[_Inode, int] = {}
        self._connections = Counter[_Inode]()

    def connected(self, path: Path) -> Callable[[], None]:
        """Note a connection to this file, which must exist. Returns what is to be called when it is closed."""
        inode = _inode(path)
        with self._guard:
            self._connections[inode] += 1
        return partial(self._disconnected, inode)

    def _disconnected(self, inode: _Inode) -> None:
        with self._guard:
            self._connections[inode] -= 1
            self._close_unused(inode)

    def take(self, path: Path) -> Callable[[], None] | None:
        """Lock a database, and return what gives the lock back; None if somebody holds it, in whatever process."""
        inode = _inode(path)
        with self._guard:
            if inode in self._held:
                return None  # without a descriptor that would have to be closed
            descriptor = self._descriptors.get(inode)
            if descriptor is None:
                descriptor = self._descriptors[inode] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if not _lock(descriptor, exclusive=True):
                self._close_unused(inode)
                return None
            self._held.add(inode)
        return partial(self._give_back, inode)

    def _give_back(self, inode: _Inode) -> None:
        with self._guard:
            self._held.discard(inode)
            if inode in self._descriptors:  # a forked child has none
                _unlock(self._descriptors[inode])
                self._close_unused(inode)

    def _close_unused(self, inode: _Inode) -> None:
        if inode not in self._held and self._connections[inode] <= 0:
            del self._connections[inode]
            if inode in self._descriptors:
                os.close(self._descriptors.pop(inode))

    def are_held(self, path: Path) -> bool:
        """Whether somebody holds the lock of this database, in whatever process. While this process reads it, only its
        own engines are known."""
        inode = _inode(path)
        with self._guard:
            if inode in self._held or inode in self._descriptors or self._connections[inode]:
                return inode in self._held
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return not _lock(descriptor, exclusive=False)
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Close what a forked child has inherited."""
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)
        self._guard, self._held, self._descriptors, self._connections = RLock(), set(), {}, Counter()


_LOCKS = _DatabaseLocks()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_LOCKS.forget)


def _inode(path: Path) -> _Inode:
    found = path.stat()
    return found.st_dev, found.st_ino


def _lock(descriptor: int, *, exclusive: bool) -> bool:
    """Lock the byte, and return whether that could be done. Where there are no such locks it counts as done."""
    if sys.platform == "linux":
        kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(kind))
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))


def _flock(kind: int) -> bytes:
    """Return C's `struct flock` for our byte. Its last field is a process id, which must be 0."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, _LOCK_BYTE, 1, 0)


@contextmanager
def exclusive_use(address: Address) -> Iterator[None]:
    """Hold the locks of a database in this block. A database in memory needs none.

    Raises `StoreError` if another engine holds it, in this process or in another one.
    """
    if address.path is None:
        yield
        return
    lock = FileLock(
        f"{address.path}.lock", mode=0o600, timeout=_LOCK_TIMEOUT, thread_local=False, fallback_to_soft=False
    )
    try:
        lock.acquire()
    except Timeout:
        raise _already_open(address) from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be locked: its folder does not allow it.") from error
    try:
        give_back = _LOCKS.take(address.path)
        if give_back is None:
            raise _already_open(address)
        try:
            yield
        finally:
            give_back()
    finally:
        lock.release()


ALREADY_OPEN = (
    "is already open in another engine; close that one first, open it here with `read_only=True`, or keep the"
    " conversations in PostgreSQL, which several processes can share."
)


def _already_open(address: Address) -> StoreError:
    return StoreError(f"{address.name} {ALREADY_OPEN}")


def in_use(address: Address) -> bool:
    """Whether an engine has the database open at this moment. No file is created.

    True also if that cannot be found out, because the folder does not allow it.
    """
    if address.path is None or not address.path.exists():
        return False
    if not Path(f"{address.path}.lock").exists():
        with suppress(OSError):
            return _LOCKS.are_held(address.path)
        return False
    try:
        with exclusive_use(address):
            return False
    except StoreError:
        return True


class writing:
    """Runs the block in a transaction that writes. It is committed at the end, and rolled back if that fails or the
    block raises. A transaction that was left open is rolled back first.

    It is a class because a generator takes several times as long, and each commit of a step enters it.

    SQLite ends a transaction by itself after some errors and leaves it open after others, such as a failed COMMIT. The
    connection is usable afterwards in any case: a rollback may fail as well, and then it is repeated before the next
    transaction.
    """

    __slots__ = ("_driver",)

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        try:
            if self._driver.in_transaction:
                roll_back(self._driver)
            self._driver.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            commit(self._driver)
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with suppress(sqlite3.Error):  # the first error says more
            roll_back(self._driver)


def commit(driver: sqlite3.Connection) -> None:
    """Commit the transaction."""
    driver.execute("COMMIT")


def roll_back(driver: sqlite3.Connection) -> None:
    """Roll back the transaction, if there is one."""
    if driver.in_transaction:
        driver.execute("ROLLBACK")


@contextmanager
def within(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction of SQLAlchemy, which itself would not roll back after a failed COMMIT."""
    driver = driver_of(connection)
    roll_back(driver)
    try:
        with connection.begin():
            yield
    finally:
        with suppress(sqlite3.Error):
            roll_back(driver)


def driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection, for what SQLAlchemy cannot do, or cannot do fast enough."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "another program holds it locked",
    sqlite3.SQLITE_LOCKED: "another program holds it locked",
    sqlite3.SQLITE_READONLY: "it may only be read",
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is damaged",
}
_UNKNOWN = "it reported an unexpected error"
_PRIMARY = 0xFF
"""The lowest byte of a SQLite result code is its kind; the bytes above it are details."""

FAILURES = (DBAPIError, sqlite3.Error, UnicodeDecodeError)
"""What the driver raises. The last is raised when it cannot decode SQLite's message, which quotes what is damaged."""


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise what the driver raises in this block as `StorageFailed`, about the database called `name`; and
    `InvalidInput` for a text that no database can hold, such as an id from a command line that is not UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidInput("The text contains a lone surrogate, so it can neither be stored nor looked for.") from error
    except FAILURES as error:
        raise as_storage_failure(name, error) from (error.orig if isinstance(error, DBAPIError) else error)


def as_storage_failure(name: str, error: BaseException) -> BaseException:
    """Return what the driver raised as `StorageFailed`, about the database called `name`; any other error as it is."""
    if not isinstance(error, FAILURES):
        return error
    cause = error.orig if isinstance(error, DBAPIError) else error
    damaged = isinstance(error, UnicodeDecodeError)
    failed = StorageFailed(_sentence(name, "it is damaged" if damaged else _CAUSES.get(_code(cause), _UNKNOWN)))
    failed.__cause__ = cause
    return failed


def is_locked(error: BaseException) -> bool:
    """Whether the error says that another program held the database locked for too long."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def cannot_be_made(error: BaseException) -> bool:
    """Whether the error says that a file could not be opened or made, or that nothing may be written."""
    return _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _code(error: BaseException | None) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY


def _sentence(name: str, cause: str) -> str:
    return f"{name} cannot be used now: {cause}."


# SQLite keeps a number in each file by which it is recognised whose database it is, before anything in it is changed:
# the application id. turnwise writes its own together with the tables, so a file has both or neither. The tables record
# their revision; one that this turnwise does not know was made by a newer turnwise.
APPLICATION_ID = int.from_bytes(b"turn", "big")

REVISIONS = ("0001",)
"""The revisions of the tables that this turnwise knows, oldest first: the files in `migrations/versions`."""

HEAD = REVISIONS[-1]


def recognise(connection: sqlite3.Connection, address: Address) -> str | None:
    """Return the revision of the tables, or None for an empty file. Changes nothing.

    Raises `StoreError` for a file that is not a database, that belongs to another program, or that was made by a newer
    turnwise.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise StoreError(f"{address.name} is not a SQLite database.") from error
    if application == 0 and tables == 0:
        return None
    if application != APPLICATION_ID or not _records_revision(connection):
        if missing_marks(connection):
            raise StoreError(
                f"{address.name} lacks what marks a database of turnwise, as after `sqlite3 .recover`; "
                "turnwise doctor --fix sets it."
            )
        raise StoreError(f"{address.name} is the database of another program.")
    (revision,) = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
    if revision not in REVISIONS:
        raise StoreError(f"{address.name} was written by a newer turnwise; update turnwise to open it.")
    return str(revision)


# --- files that were put together again

_OWN_TABLES = {
    "conversations": {"key", "id", "seq", "chain", "state_type", "state"},
    "events": {"conversation", "seq", "type", "payload", "effects", "ended", "state", "chain"},
}
"""The columns by which the tables of a database of turnwise are known, whatever its revision."""

_SINCE = (("0001", "conversations", "key"),)
"""The table and its column by which each revision is known, the newest first."""


def missing_marks(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return what a file lacks that holds the tables of turnwise and is not marked as its database, a sentence for each
    mark; nothing for every other file. A program that saves what it can from a damaged file leaves the marks out."""
    if any(_columns(connection, table) < columns for table, columns in _OWN_TABLES.items()):
        return ()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    lacking = []
    if application == 0:
        lacking.append("The application id is missing, by which a database of turnwise is known.")
    elif application != APPLICATION_ID:
        return ()
    if not _records_revision(connection):
        lacking.append("The revision of the tables is missing.")
    return tuple(lacking)


def set_marks(connection: sqlite3.Connection) -> None:
    """Mark the file as a database of turnwise; the revision follows from its tables. To be called in a transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if not _records_revision(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("DELETE FROM alembic_version")
        connection.execute("INSERT INTO alembic_version VALUES (?)", (_revision_of_tables(connection),))


def _revision_of_tables(connection: sqlite3.Connection) -> str:
    return next(revision for revision, table, column in _SINCE if column in _columns(connection, table))


def _records_revision(connection: sqlite3.Connection) -> bool:
    if not _columns(connection, "alembic_version"):
        return False
    return bool(connection.execute("SELECT count(*) FROM alembic_version").fetchone() != (0,))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


INTERVAL = 0.1
"""Seconds after which the files are looked at again. Chosen so that it costs nothing that can be measured, and that
little is lost."""

_Identity = tuple[int, int]


class OpenFiles:
    """The file of the database called `name` at `path`, which was opened just now, and the two beside it. Only the
    holder of the writer's lock uses it.

    An operating system lets a file be deleted, renamed or replaced while a program has it open. SQLite goes on writing
    to the old one, and what it is told to keep is gone when it is closed, or lies where nobody looks for it. The same
    holds for the write-ahead log and its index, which SQLite finds by their names when it opens the database again. So
    before steps are stored, the files are compared with those that were opened, by their device and number.

    To ask takes microseconds on a local disk, and longer over a network. So it is done before the first step that
    follows a pause, and not again for `INTERVAL`. What was stored in that time may be lost with the file; nothing later
    is acknowledged.
    """

    def __init__(self, name: str, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        beside = (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))
        self._opened: dict[Path, _Identity | None] = {each: _identity(each) for each in (path, *beside)}
        self._checked = monotonic()
        self._gone: FileGone | None = None

    def check(self) -> None:
        """Raise `FileGone` if one of the files is not the one that was opened, as far as that was looked at lately.
        Once it was raised it always is."""
        if self._gone is not None or self._monotonic() - self._checked >= INTERVAL:
            self.check_now()

    def check_now(self) -> None:
        """Raise `FileGone` like `check`, but look in any case."""
        if self._gone is None:
            self._checked = self._monotonic()
            if not all(map(self._is_there, self._opened)):
                self._gone = FileGone(self._name)
        if self._gone is not None:
            raise self._gone

    @property
    def are_gone(self) -> bool:
        """Whether that was found out before."""
        return self._gone is not None

    def _is_there(self, path: Path) -> bool:
        opened, found = self._opened[path], _identity(path)
        if opened is None:  # SQLite makes the files beside the database when it needs them first
            self._opened[path] = found
            return True
        return found == opened


def _identity(path: Path) -> _Identity | None:
    """Return what tells this file from all others; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:  # its folder is gone, or does not answer
        return (0, 0)
    return found.st_dev, found.st_ino
