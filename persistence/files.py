"""The files of the conversations in a database: bytes that are stored once, whoever refers to them.

The rows that say which files there are, and which conversations may refer to them, are always in the database, so the
same transactions decide about them that decide about conversations. The bytes are there as well, or, if the engine was
opened with one, in a file store, where each file has a name that is never given again. What is stored there is never
changed, and is deleted only after the row that names it. So a crash leaves at most bytes that nobody refers to, which
`doctor` finds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from secrets import token_hex
from time import time
from typing import Protocol, TypeVar

from ..states.errors import UnknownConversation
from .codec import files_in
from .errors import StorageFailed, StoreConflict
from .ports import FileStore
from .records import ConversationRecord, KeptFile, StorageFault
from .sql import files as sql
from .sql.statements import Driver

logger: logging.Logger = logging.getLogger("turnwise.store")

T = TypeVar("T")

FRESH = 86_400
"""For how many seconds a file may be kept before a step refers to it. Much longer than any request takes."""


def new_mark() -> str:
    """Return a mark that nobody else has, which holds the moment at which it was made."""
    return f"{int(time()):010x}.{token_hex(8)}"


def is_fresh(mark: str) -> bool:
    """Whether a file was kept under this mark so short a time ago that a step may refer to it soon."""
    made = _MARK.fullmatch(mark)
    return made is not None and int(made[1], 16) > time() - FRESH


_MARK = re.compile(r"([0-9a-f]{10,16})\.[0-9a-f]+")


TRIES = 10
"""How often a file is stored again that is deleted at the same moment, because its last conversation was."""

NO_FILE_STORE = "The bytes of a file are in a file store with which the database was not opened."


class InTransaction(Protocol):
    """Does work in a transaction of the database."""

    def __call__(self, work: Callable[[Driver], T], /) -> Awaitable[T]:
        """Return what the work returns."""
        ...


class DatabaseFiles:
    """Implements the port `Files` over a database, with the bytes in it or in a `file_store`.

    `read` and `write` do work in a transaction, and `is_conflict` says of an error whether it means that a file was
    deleted at the same moment.
    """

    def __init__(
        self,
        read: InTransaction,
        write: InTransaction,
        is_conflict: Callable[[Exception], bool],
        file_store: FileStore | None = None,
    ) -> None:
        self._read = read
        self._write = write
        self._is_conflict = is_conflict
        self._file_store = file_store

    async def keep(self, conversation_id: str | None, sha256: str, data: bytes) -> str | None:
        """Store a file, unless it is stored already, and keep it for this conversation; `Files.keep` says the rest."""
        mark = new_mark()
        for left in reversed(range(TRIES)):
            try:
                return await self._keep(conversation_id, sha256, data, mark)
            except Exception as error:
                if not left or not (isinstance(error, StoreConflict) or self._is_conflict(error)):
                    raise
        raise AssertionError("the last try raises")

    async def _keep(self, conversation_id: str | None, sha256: str, data: bytes, mark: str) -> str | None:
        place = None
        if self._file_store is not None and await self._read(lambda driver: sql.find(driver, sha256)) is None:
            place = f"{sha256}.{new_mark()}"
            await self._file_store.write(place, data)
        is_here = self._file_store is None

        def store(driver: Driver) -> tuple[bool, bool]:
            # A file that was deleted since it was found is stored by the next try.
            may_add = is_here or place is not None
            is_added = may_add and sql.add(driver, sha256, len(data), data if is_here else None, place)
            return is_added, conversation_id is not None and sql.use(driver, conversation_id, sha256, mark)

        try:
            is_added, is_new = await self._write(store)
        except Exception as error:
            if place is not None and self._is_refusal(error):
                await self.remove([place])
            raise
        if place is not None and not is_added:
            await self.remove([place])
        return mark if is_new else None

    def _is_refusal(self, error: Exception) -> bool:
        """Whether nothing was stored for certain. A storage that failed may have stored what it was given."""
        return isinstance(error, StoreConflict | UnknownConversation) or self._is_conflict(error)

    async def take_back(self, conversation_id: str, sha256: str, mark: str) -> None:
        """Keep a file no longer for a conversation that does not refer to it; `Files.take_back` says the rest."""
        await self.remove(await self._write(lambda driver: sql.take_back(driver, conversation_id, sha256, mark)))

    async def read(
        self, conversation_id: str | None, sha256: str, start: int = 0, end: int | None = None
    ) -> bytes | None:
        """Return bytes of a file; `Files.read` says the rest."""

        def find(driver: Driver) -> tuple[sql.FileRow, bytes] | None:
            if conversation_id is None:
                row = sql.find(driver, sha256)
            else:
                row = sql.find_used(driver, conversation_id, sha256)
            if row is None:
                return None
            return row, b"" if row.place is not None else sql.read(driver, row, start, _end(row, end))

        if (found := await self._read(find)) is None:
            return None
        row, data = found
        if row.place is None:
            return data
        if self._file_store is None:
            raise StorageFailed(NO_FILE_STORE)
        return await self._file_store.read(row.place, start, _end(row, end))

    async def of(self, conversation_id: str) -> tuple[KeptFile, ...]:
        """Return the files that are kept for a conversation; `Files.of` says the rest."""
        return await self._read(lambda driver: sql.kept_for(driver, conversation_id))

    async def faults(self) -> tuple[StorageFault, ...]:
        """Return what is wrong between the rows and the file store: bytes that no row names, apart from those that were
        stored just now, and rows whose bytes are not there."""
        if self._file_store is None:
            return ()
        names = frozenset(await self._file_store.names())
        places = await self._read(sql.places)
        stray = [name for name in names - places if not is_fresh(name.partition(".")[2])]
        told = {
            "There are files in the file store that nobody refers to": stray,
            "There are files whose bytes are not in the file store": places - names,
        }
        return tuple(StorageFault(f"{what}: {len(found)}.") for what, found in told.items() if found)

    async def remove(self, places: Iterable[str]) -> None:
        """Delete these bytes from the file store, because their rows were deleted. What cannot be deleted now is left
        for the doctor."""
        if self._file_store is not None:
            for place in places:
                try:
                    await self._file_store.delete(place)
                except StorageFailed as failure:
                    logger.warning("A file that nobody refers to any more is left in the file store: %s", failure)


def check_files(driver: Driver, key: int, record: ConversationRecord) -> None:
    """Raise `StorageFailed` if a file to which this record refers, which was stored just now under this key, was
    deleted before: the caller stores it again."""
    wanted = files_in(record.steps)
    if wanted and len(sql.keys_of(driver, key)) < len(wanted):
        raise StorageFailed("A file of the conversation was deleted at the same moment; try again.")


def _end(row: sql.FileRow, end: int | None) -> int:
    return row.size if end is None else min(end, row.size)
