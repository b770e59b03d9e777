"""The store that ships keeps the contract that every store keeps: on a file, and in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from turnwise.persistence.port import StorePort
from turnwise.persistence.store import Store
from turnwise.testing.store_contract import StoreContract


@asynccontextmanager
async def opened(url: str | Path) -> AsyncIterator[Store]:
    """A store, open."""
    store = await Store.open(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def full(store: StorePort) -> AsyncIterator[None]:
    """The database may not grow."""
    assert isinstance(store, Store)

    def limit(connection: Connection, pages: int | None) -> None:
        pages = pages or connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    await store._database.write(lambda connection: limit(connection, None))
    yield
    await store._database.write(lambda connection: limit(connection, 1_000_000))


class TestAFile(StoreContract):
    """SQLite on a file."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[StorePort]:
        """The file is `dinner.db`."""
        return opened(place / "dinner.db")

    def in_trouble(self, store: StorePort, place: Path) -> AbstractAsyncContextManager[None]:
        """The disk is full."""
        return full(store)


class TestMemory(StoreContract):
    """SQLite in memory, which is gone when it is closed."""

    lasting = False

    def opened(self, place: Path) -> AbstractAsyncContextManager[StorePort]:
        """No file at all."""
        return opened(":memory:")

    def in_trouble(self, store: StorePort, place: Path) -> AbstractAsyncContextManager[None]:
        """The memory is full."""
        return full(store)


class TestAStoreThatIsNotDescribed:
    """A contract that is subclassed in part says what is missing."""

    def test_must_say_how_it_is_opened(self, tmp_path: Path) -> None:
        """Nothing is guessed."""
        with pytest.raises(NotImplementedError):
            StoreContract().opened(tmp_path)

    def test_need_not_say_how_it_fails(self, tmp_path: Path) -> None:
        """That test is skipped."""
        with pytest.raises(pytest.skip.Exception):
            StoreContract().in_trouble(None, tmp_path)  # type: ignore[arg-type]
