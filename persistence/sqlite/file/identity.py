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
    if application != APPLICATION_ID:
        raise StoreError(f"{address.name} is the database of another program.")
    (revision,) = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
    if revision not in REVISIONS:
        raise StoreError(f"{address.name} was written by a newer turnwise; update turnwise to open it.")
    return str(revision)
