"""Opens the store for a URL: the one place that knows which scheme belongs to which store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..states.errors import StoreError

if TYPE_CHECKING:
    from .ports import Store


async def open_store(url: str | Path, *, read_only: bool = False, create: bool = True) -> Store:
    """Open the store at `url`: a path, `sqlite:///dinner.db`, or `sqlite://` for a database in memory.

    Whoever opens a store must `close` it. One store at a time may write to a database; `read_only` works beside it and
    changes nothing. Raises `StoreError` for a scheme that no store has, for a database that cannot be used, and,
    unless it may `create` one, for a database that does not exist.
    """
    from .sqlite.file import Address
    from .sqlite.store import SqliteStore

    address = Address.of(url)
    if not create and address.path is not None and not address.path.exists():
        raise StoreError(f"There is no database called {address.name}.")
    return await SqliteStore.open(url, read_only=read_only)


def is_in_memory(url: str | Path) -> bool:
    """Whether the database at `url` ends with the process that opens it. Raises `StoreError` for an invalid URL."""
    from .sqlite.file import Address

    return Address.of(url).path is None


def is_in_use(url: str | Path) -> bool:
    """Whether an engine has the database at `url` open for writing, in this process or another one.

    Raises `StoreError` for an invalid URL.
    """
    from .sqlite.file import Address, in_use

    return in_use(Address.of(url))


def missing_marks(url: str | Path) -> tuple[str, ...]:
    """Return what the file of a database lacks that was put together again by another program, as `sqlite3 .recover`
    does, a sentence for each mark; nothing for a database that can be opened, or that is not one of turnwise.

    Raises `StoreError` for an invalid URL and a file that is not a database.
    """
    from .sqlite.database import missing_marks
    from .sqlite.file import Address

    return missing_marks(Address.of(url))


def set_marks(url: str | Path) -> None:
    """Give such a file the marks that it lacks, so that it can be opened. Raises `StoreError`, also if another program
    has it open."""
    from .sqlite.database import set_marks
    from .sqlite.file import Address

    set_marks(Address.of(url))
