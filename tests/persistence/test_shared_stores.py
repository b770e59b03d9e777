"""The stores that several processes share, the one of simulations among them, keep their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise.testing.store_contract import SharedStoreContract

from ..simulation.shared_store import SharedStorage, steady_storage


class TestTheSimulatedStore(SharedStoreContract):
    """What holds of it in simulations holds of real stores."""

    storage: SharedStorage | None = None
    processes = 0

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Any]:
        """One more process."""
        if self.storage is None:
            self.storage = steady_storage()
        self.processes += 1
        store = (await self.storage.open(f"P{self.processes}")).store
        yield store
        await store.close()


@pytest.mark.slow
class TestPostgres(SharedStoreContract):
    """Every store has connections of its own."""

    @pytest.fixture(autouse=True)
    def _given(self, migrated_postgres_url: str) -> None:
        self.url = migrated_postgres_url

    def opened(self, place: Path) -> AbstractAsyncContextManager[Any]:
        """One more process."""
        from .postgres.test_store import opened

        return opened(self.url)
