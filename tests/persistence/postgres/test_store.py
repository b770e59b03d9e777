"""The store in PostgreSQL: all that a store must do, and what several processes that share it may rely on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from turnwise.persistence.ports import Store
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.testing.store_contract import StoreContract

from ...support.postgres.fixtures import OLDEST_AND_NEWEST, Databases

CONNECTIONS = 4


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Open a store over the database at `url`, as one process does."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=CONNECTIONS)
    try:
        yield store
    finally:
        await store.close()


@OLDEST_AND_NEWEST
class TestPostgres(StoreContract):
    """A database that each test has for itself. Its folder stands for the database, and folders in it for schemas."""

    @pytest.fixture(autouse=True)
    def _given(self, postgres_databases: Databases, postgres_url: str, tmp_path: Path) -> None:
        self.databases, self.url, self.place = postgres_databases, postgres_url, tmp_path

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """Every store has connections of its own."""
        option = f"{'&' if '?' in self.url else '?'}schema={place.name}"
        return opened(self.url if place == self.place else self.url + option)

    @asynccontextmanager
    async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
        """The server ends all sessions and takes no new ones, as while it is shut down."""
        name = self.databases.name_of(self.url)
        self.databases.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.databases.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        yield
        self.databases.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
