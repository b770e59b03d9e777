"""The database that a command works with: only looked at, or to be changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ....persistence.sqlite.address import Address
from ....persistence.sqlite.store import Store
from ....states.errors import StoreError

if TYPE_CHECKING:
    from .settings import Settings


@asynccontextmanager
async def store_for(settings: Settings) -> AsyncIterator[Store]:
    """The database of these settings, open for reading. Raises `StoreError`."""
    store = await Store.open(settings.db, read_only=True)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def store_to_change(settings: Settings, *, make: bool = False) -> AsyncIterator[Store]:
    """The database of these settings, open for writing, with its lock; unless `make`, it must be there already.

    Raises `StoreError`.
    """
    address = Address.of(settings.db)
    if address.path is None:
        raise StoreError("A database in memory is gone when this command ends; name a file with --db.")
    if not make and not address.path.exists():
        raise StoreError(f"There is no database called {address.name}.")
    store = await Store.open(settings.db)
    try:
        yield store
    finally:
        await store.close()
