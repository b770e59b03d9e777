"""What tests of the store do behind its back: they look at the connection that writes, and undo migrations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from itertools import groupby
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
