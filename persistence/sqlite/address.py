"""What can be asked of a file, or of a database in memory, that no store of this program has open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...states.errors import StoreError
from . import database, file
from .store import SqliteStore


class SqliteAddress(file.Address):
    """Implements the port `DatabaseAddress`. Made by `of`."""

    is_shared = False

    @property
    def url_without_password(self) -> str:
        """The path of the file, as its user wrote it."""
        return file.MEMORY if self.path is None else self.name

    @property
    def is_in_memory(self) -> bool:
        """Whether it is in the memory of this process."""
        return self.path is None

    async def open(
        self, *, read_only: bool, create: bool, connections: int, file_store: FileStore | None = None
    ) -> SqliteStore:
        """Open the store. A file has one connection that writes and one that reads, whatever `connections` says."""
        if not create and self.path is not None and not self.path.exists():
            raise StoreError(f"There is no database called {self.name}.")
        where = file.MEMORY if self.path is None else Path(self.name)
        return await SqliteStore.open(where, read_only=read_only, file_store=file_store)

    async def is_in_use(self) -> bool:
        """Whether an engine has the file open for writing."""
        return file.in_use(self)

    def missing_marks(self) -> tuple[str, ...]:
        """Return what the file lacks. Raises `StoreError` for a file that is not a database."""
        return database.missing_marks(self)

    def set_marks(self) -> None:
        """Give the file the marks that it lacks."""
        database.set_marks(self)


if TYPE_CHECKING:
    from ..opening import DatabaseAddress
    from ..ports import FileStore

    _ADDRESS: type[DatabaseAddress] = SqliteAddress
