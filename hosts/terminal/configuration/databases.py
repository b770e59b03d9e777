"""Opens the database that the settings name, for reading or for writing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ....persistence.opening import is_in_memory, open_store
from ....persistence.ports import Store
from ....states.errors import StoreError
from .settings import Settings


@asynccontextmanager
async def open_for_reading(settings: Settings) -> AsyncIterator[Store]:
    """Open the database read-only and without its lock. Raises `StoreError`."""
    store = await open_store(settings.db, read_only=True)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_for_writing(settings: Settings, *, create: bool = False) -> AsyncIterator[Store]:
    """Open the database, and lock it. Unless `create` is given it must exist.

    Raises `StoreError`, also if another program has it open.
    """
    if is_in_memory(settings.db):
        raise StoreError("A database in memory ends with this command; name a file with --db.")
    store = await open_store(settings.db, create=create)
    try:
        yield store
    finally:
        await store.close()
