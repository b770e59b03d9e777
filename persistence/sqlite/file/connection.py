"""A connection to SQLite, configured so that what was committed is still there after a power cut.

The defaults of SQLite and of its Python driver serve other needs. Here every connection checks foreign keys, waits for
a locked database, syncs to the disk at each commit, and overwrites what it deletes. The driver's own transaction
control is switched off: it begins transactions late and lets two writers overwrite each other's work. A transaction
that writes takes the write lock when it begins.
"""

from __future__ import annotations

import sqlite3
from typing import Literal

from sqlalchemy import Connection, NullPool, create_engine, event

from .address import MEMORY, Address

PRAGMAS = ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON")

Mode = Literal["rw", "ro"]


def connect(address: Address, mode: Mode, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, which must exist, without reading it. The connection is for one thread at a time.

    `busy_timeout` is how many seconds to wait for a lock that another program holds.
    """
    # The garbage collector closes a store that nobody closed, in whatever thread it runs.
    target = MEMORY if address.path is None else f"{address.path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(target, timeout=busy_timeout, isolation_level=None, check_same_thread=False, uri=True)
    connection.text_factory = _text
    return connection


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
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=NullPool, hide_parameters=True)
    begin = "BEGIN IMMEDIATE" if mode == "rw" else "BEGIN"
    event.listen(engine, "begin", lambda _: connection.execute(begin))
    return engine.connect()
