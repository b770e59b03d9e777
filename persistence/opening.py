"""Opens the store for a URL: the one place that knows which scheme belongs to which store.

A store has an address, which answers what is asked of a database that is not open: what it is called, whether a program
uses it, whether its file lacks something.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..states.errors import StoreError

if TYPE_CHECKING:
    from .ports import FileStore, Store

CONNECTIONS = 10
"""How many connections to a server a store may hold, unless it is told."""


POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
"""The schemes of URLs of databases in PostgreSQL, for which alone its modules are imported. The last one is what
SQLAlchemy calls the same driver."""

_KEYWORDS = re.compile(
    r"\s*(?:\w+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^'\\\s]|\\.)+)\s+)*(?:host|hostaddr|dbname|service)\s*="
)
"""The other form in which programs of PostgreSQL take an address: `host=db dbname=dinner`. Taken for a path, it would
make a file that is named after the password."""


class DatabaseAddress(Protocol):
    """Where a database is. Its methods raise `StoreError` for a database that cannot be used."""

    @property
    def name(self) -> str:
        """What messages call the database: as its user wrote it, without a password."""
        ...

    @property
    def url_without_password(self) -> str:
        """What opens the database again, for command lines that people copy: whoever may open it has the password in a
        file of their own."""
        ...

    @property
    def is_in_memory(self) -> bool:
        """Whether the database ends with the process that opens it."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether several processes may have it open at once."""
        ...

    async def open(
        self, *, read_only: bool, create: bool, connections: int, file_store: FileStore | None = None
    ) -> Store:
        """Open the store; `open_store` says the rest."""
        ...

    async def is_in_use(self) -> bool:
        """Whether an engine that drives conversations has the database open, in this process or another one. A turn
        under way is interrupted if none has."""
        ...

    def missing_marks(self) -> tuple[str, ...]:
        """Return what a file lacks that was put together again by another program, as `sqlite3 .recover` does, a
        sentence for each mark; nothing for a database that can be opened, or that is not one of turnwise."""
        ...

    def set_marks(self) -> None:
        """Give such a file the marks that it lacks, so that it can be opened. Raises `StoreError` also if another
        program has it open."""
        ...


def address_of(url: str | Path) -> DatabaseAddress:
    """Return the address of the database at `url`. Raises `StoreError` for an invalid URL, and for a scheme that no
    store has."""
    if isinstance(url, str) and _KEYWORDS.match(url):
        raise StoreError("The address of a database in PostgreSQL is a URL here: postgresql://user@host:port/database")
    scheme, colon, _ = str(url).partition(":")  # a file may be called postgres
    if isinstance(url, str) and colon and scheme.partition("+")[0].lower() in POSTGRESQL:
        from .postgres.address import PostgresAddress

        return PostgresAddress.of(url)
    from .sqlite.address import SqliteAddress

    return SqliteAddress.of(url)


async def open_store(
    url: str | Path,
    *,
    read_only: bool = False,
    create: bool = True,
    connections: int = CONNECTIONS,
    file_store: FileStore | None = None,
) -> Store:
    """Open the store at `url`: a path, `sqlite:///dinner.db`, `sqlite://` for a database in memory, or
    `postgresql://user@host/dinner` for one that several processes share.

    Whoever opens a store must `close` it. One store at a time may write to a file; `read_only` works beside it and
    changes nothing. `connections` is how many connections to a server the store may hold at once; a file has its own.
    The bytes of files go to the `file_store`, if one is given, and into the database otherwise. Raises `StoreError` for
    a scheme that no store has, for a database that cannot be used, and, unless it may `create` one, for a database that
    does not exist.
    """
    return await address_of(url).open(
        read_only=read_only, create=create, connections=connections, file_store=file_store
    )
