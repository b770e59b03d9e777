"""A connection to SQLite, set up so that what was committed is still there after a power cut.

SQLite's defaults, and those of its Python driver, are made for other needs. Here every connection checks foreign keys,
waits a while for a locked database, writes through to the disk at each commit, and overwrites what it deletes. The
driver's own transaction control is off: it begins transactions late and lets two writers overwrite each other's
work. A writer takes the write lock when it begins, not halfway.
"""

from __future__ import annotations

import sqlite3
from typing import Literal

from sqlalchemy import Connection, NullPool, create_engine, event

from .address import MEMORY, Address

PRAGMAS = ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON")

Mode = Literal["rw", "ro"]


def connect(address: Address, mode: Mode, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, which must exist, and read nothing yet. The connection is for one thread at a time.

    `busy_timeout` is how many seconds to wait for a lock that another program holds.
    """
    # A store that nobody closed is closed by the garbage collector, in whatever thread that runs.
    target = MEMORY if address.path is None else f"{address.path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(target, timeout=busy_timeout, isolation_level=None, check_same_thread=False, uri=True)
    connection.text_factory = _text
    return connection


def _text(raw: bytes) -> str:
    """Text as it stands in the file, even where damage has made it invalid, so that the damaged step can be named."""
    return raw.decode(errors="surrogateescape")


def configured(connection: sqlite3.Connection, mode: Mode) -> Connection:
    """The same connection under SQLAlchemy, with everything set. Closing the result closes the connection.

    Error messages leave parameters out: they are what people said.
    """
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    if mode == "rw":
        connection.execute("PRAGMA journal_mode = WAL")
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=NullPool, hide_parameters=True)
    begin = "BEGIN IMMEDIATE" if mode == "rw" else "BEGIN"
    event.listen(engine, "begin", lambda _: connection.execute(begin))
    return engine.connect()
