"""Recognises whose database a file is, before anything in it is changed.

SQLite keeps a number in each file for this purpose, the application id. turnwise writes its own together with the
tables, so a file has both or neither. The tables record their revision; one that this turnwise does not know was made
by a newer turnwise.
"""

from __future__ import annotations

import sqlite3

from ....states.errors import StoreError
from .address import Address

APPLICATION_ID = int.from_bytes(b"turn", "big")

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""The revisions of the tables that this turnwise knows, oldest first: the files in `migrations/versions`."""

HEAD = REVISIONS[-1]

READABLE = ("0002", "0003", "0004", "0005", "0006", HEAD)
"""The revisions that can be read without migrating: 0003 only adds an index, and views can stand in for the tables and
columns that the later ones add."""


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

_SINCE = (
    ("0007", "acknowledgements", "checksum"),
    ("0006", "conversations", "wakes_at"),
    ("0005", "texts", "id"),
    ("0004", "details", "title"),
    ("0002", "forks", "origin"),
)
"""The table and its column by which each revision is known, the newest first. 0003 only adds an index."""


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
    found = (revision for revision, table, column in _SINCE if column in _columns(connection, table))
    return next(found, REVISIONS[0])


def _records_revision(connection: sqlite3.Connection) -> bool:
    if not _columns(connection, "alembic_version"):
        return False
    return bool(connection.execute("SELECT count(*) FROM alembic_version").fetchone() != (0,))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
