"""The store that ships does what every store must do: in a file, and in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

from turnwise.persistence import SqliteStore, Store
from turnwise.testing.store_contract import StoreContract


@asynccontextmanager
async def opened(url: str | Path) -> AsyncIterator[SqliteStore]:
    """Open a store, which waits for a lock only briefly."""
    store = await SqliteStore.open(url, busy_timeout=0.05)
    try:
        yield store
    finally:
        await store.close()


class TestAFile(StoreContract):
    """SQLite in a file."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """The file is `dinner.db`."""
        return opened(place / "dinner.db")

    @asynccontextmanager
    async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
        """Another program holds the file locked."""
        with closing(sqlite3.connect(place / "dinner.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


class TestMemory(StoreContract):
    """SQLite in memory, which is gone when it is closed."""

    lasting = False

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """There is no file."""
        return opened(":memory:")
