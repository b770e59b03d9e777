"""The stores that several processes share, the one of simulations among them, keep their contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise.effects.clock import SystemClock
from turnwise.testing.store_contract import SharedStoreContract

from ..simulation.disk import Disk
from ..simulation.environment import EventTrace, Steady
from ..simulation.shared_store import SharedStorage


class TestTheSimulatedStore(SharedStoreContract):
    """What holds of it in simulations holds of real stores."""

    storage: SharedStorage | None = None
    processes = 0

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Any]:
        """One more process."""
        if self.storage is None:
            trace = EventTrace(asyncio.get_running_loop())
            self.storage = SharedStorage(Disk(Steady("steady"), trace), SystemClock())
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
