"""What tests of the store do behind its back: they look at the connection that writes, and undo migrations."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from turnwise.persistence.sqlite.file import driver_of
from turnwise.persistence.sqlite.store import SqliteStore

NAMES = [f"walk {number}" for number in range(10)]


async def query(store: SqliteStore, sql: str) -> Any:
    """What a statement gives on the connection that writes, outside of any transaction."""

    def execute(connection: Connection) -> Any:
        row = driver_of(connection).execute(sql).fetchone()
        return None if row is None else row[0]

    return await store.database.writing.run(execute)


async def together(store: SqliteStore, *work: Awaitable[Any]) -> list[Any]:
    """What comes of work that waits while the thread that writes is busy, so that all of it is there when it is not."""
    free = threading.Event()
    busy = asyncio.ensure_future(store.database.writing.run(lambda _: free.wait()))
    tasks = [asyncio.ensure_future(one) for one in work]
    await asyncio.sleep(0)  # all of it is handed in
    free.set()
    await busy
    return await asyncio.gather(*tasks, return_exceptions=True)


async def statements_of(store: SqliteStore) -> list[str]:
    """A list to which the first words of each statement that is run from now on are added."""
    words: list[str] = []

    def note(statement: str) -> None:
        words.append(" ".join(statement.split()[:3]).partition(" SET")[0])

    await store.database.writing.run(lambda connection: driver_of(connection).set_trace_callback(note))
    return words


def without_repeats(words: list[str]) -> list[str]:
    """Each statement once for each time that it is run for a batch."""
    return [word for word, _ in groupby(words)]


_UNDO = {
    "0007": (
        "ALTER TABLE outbox DROP COLUMN begun",
        "ALTER TABLE forks DROP COLUMN checksum",
        "ALTER TABLE conversations DROP COLUMN sent",
        "DROP TABLE acknowledgements",
    ),
    "0006": (
        "DROP INDEX conversations_wakes_at",
        "DROP INDEX details_role",
        "DROP INDEX details_parent",
        "DROP INDEX details_works_for",
        "DROP INDEX events_context_changed",
        "CREATE INDEX events_context_changed ON events (conversation, type, seq) "
        "WHERE type = 'policy_changed' OR type = 'tools_changed' OR type = 'details_changed'",
        "ALTER TABLE conversations DROP COLUMN wakes_at",
        "ALTER TABLE details DROP COLUMN role",
        "ALTER TABLE details DROP COLUMN parent",
        "ALTER TABLE details DROP COLUMN works_for",
    ),
    "0005": ("DROP TABLE text_vectors", "DROP TABLE text_positions", "DROP TABLE texts"),
    "0004": (
        "DROP TABLE details",
        "DROP TABLE metadata_entries",
        "DROP INDEX conversations_owner",
        "DROP INDEX events_context_changed",
        "CREATE INDEX events_policy_changed ON events (conversation, seq) WHERE type = 'policy_changed'",
    ),
    "0003": ("DROP INDEX events_policy_changed",),
    "0002": ("DROP TABLE forks",),
}
"""The statements that undo each migration, the newest first."""


def take_back(path: Path, revision: str) -> None:
    """Undo the migrations behind `revision`. What only the newer tables hold is lost."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for newer, statements in _UNDO.items():
            if newer > revision:
                for statement in statements:
                    other.execute(statement)
        other.execute("UPDATE alembic_version SET version_num = ?", (revision,))
