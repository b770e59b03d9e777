"""Opens the store for a URL: the one place that knows which scheme belongs to which store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ports import Store


async def open_store(url: str | Path, *, read_only: bool = False) -> Store:
    """Open the store at `url`: a path, `sqlite:///dinner.db`, or `sqlite://` for a database in memory.

    Whoever opens a store must `close` it. One store at a time may write to a database; `read_only` works beside it and
    changes nothing. Raises `StoreError` for a scheme that no store has, and for a database that cannot be used.
    """
    from .sqlite.store import SqliteStore

    return await SqliteStore.open(url, read_only=read_only)
