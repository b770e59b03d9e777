"""A connection to SQLite, configured so that what was committed is still there after a power cut.

The defaults of SQLite and of its Python driver serve other needs. Here every connection checks foreign keys, waits for
a locked database, syncs to the disk at each commit, and overwrites what it deletes. The driver's own transaction
control is switched off: it begins transactions late and lets two writers overwrite each other's work. A transaction
that writes takes the write lock when it begins.

All connections of a process share two engines of SQLAlchemy, one that writes and one that reads. An engine keeps the
statements that it has compiled, and to make one and to compile the first statements took a third of the time that it
takes to open a database.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, Engine, NullPool, create_engine, event

from .address import MEMORY, Address
from .lock import LOCKS
from .transaction import driver_of

PRAGMAS = ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON")

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
        self._closed = weakref.finalize(self, LOCKS.connected(path))
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
    for pragma in PRAGMAS:
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
