"""An open database: one thread that writes, and one that reads beside it.

SQLite lets one writer work at a time and any number of readers beside it, so a list of conversations does not wait for
a commit, and a commit does not wait for a long read. Where the disk is quick, the event loop's thread commits steps
itself, over the connection of the thread that writes. A database in memory has one connection, which does everything.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from ...states.errors import StoreError
from ...states.values.acts import MemoryScope
from ..errors import StorageFailed
from ..sql.writing import Append
from . import erasure, file
from .file import (
    HEAD,
    Address,
    cannot_be_made,
    configured,
    connect,
    exclusive_use,
    recognise,
    translated,
    within,
    writing,
)
from .schema import migrate
from .thread import ConnectionThread, Opening, Worker
from .writer import Receipt, WritingThread

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds to wait for a lock that another program holds on the file: the default of SQLite's driver for Python."""


class Database:
    """An open database file. Made by `open`; whoever opens it must `close` it."""

    def __init__(self, address: Address, reader: ConnectionThread, writer: WritingThread | None) -> None:
        self.name: str = address.name
        self._reader = reader
        self._writer = writer
        self._erasing: set[int] = set()
        """The keys of conversations of which something may be left in the tables."""

    @classmethod
    async def open(cls, url: str | Path, *, read_only: bool = False, busy_timeout: float = BUSY_TIMEOUT) -> Database:
        """Open the database at `url`, and create it if there is none; `SqliteStore.open` says the rest."""
        address = Address.of(url)
        reading = partial(open_for_reading, address, busy_timeout)
        if read_only:
            return cls(address, await _reader(address, reading), None)
        writer = WritingThread.start(address.name, address.path)
        await writer.open(partial(open_for_writing, address, busy_timeout))
        if address.path is None:
            return cls(address, writer, writer)
        try:
            return cls(address, await _reader(address, reading), writer)
        except BaseException:
            await writer.close()
            raise

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` within one transaction that reads: it sees the newest commit, and no later one."""
        return await self._reader.run(partial(_within_transaction, work))

    async def look(self, work: Callable[[Connection], T]) -> T:
        """Do `work`, which reads a file that may be damaged, outside of a transaction: one in which a statement has
        failed for damage fails as a whole, although the others have read what is left."""
        return await self._reader.run(work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` within one transaction that writes. If `work` raises, all of it is rolled back."""
        return await self.writing.run(partial(_within_transaction, work))

    def append(self, step: Append) -> Awaitable[None] | None:
        """Store a step behind its position, which moves on. Returns what is to be awaited, or None if it is stored.

        Steps that wait at the same time are stored in one transaction. Steps and other writes keep their order. Raises
        `StoreConflict`; `SqliteLog.append` says the rest.
        """
        return self.writing.append(step)

    def note(self, receipt: Receipt) -> None:
        """Store the receipt of a delivery, with the next commit or soon. Returns at once."""
        self.writing.note(receipt)

    async def flush(self) -> None:
        """Return when all receipts that were handed in are stored, or could not be stored for now."""
        if self._writer is not None:
            await self._writer.flush()

    async def index(self, scope: MemoryScope | None = None) -> None:
        """Index what was said in the conversations of a scope, or in all of them, in several transactions, between
        which others may write. A database that was opened for reading only stays as it is."""
        writer = self._writer
        while writer is not None and not writer.follower.is_current and await writer.index(scope):
            pass

    async def erase(self, conversation_id: str) -> list[str] | None:
        """Delete a conversation, and return the places in the file store of the files that nobody refers to any more;
        None if there is no such conversation. It is gone at once, and its rows are overwritten in
        short transactions, between which others write. Nothing of it is left in the bytes of a small file when this
        returns, and in those of a large one when it is closed (`erasure`). Raises `TracesLeft`."""
        begun = await self.writing.run(partial(erasure.begin, conversation_id=conversation_id))
        if begun is None:
            return None
        key = begun.key
        self._erasing.add(key)
        erasing = erasure.Erasure(key, begun.files)
        try:
            while await self.write(partial(self._erase_piece, erasing)):
                pass
        except StorageFailed as error:
            raise erasure.traces_left(self.name) from error
        self._erasing.discard(key)
        await self.writing.run(self._finish_erasure)
        return begun.places

    def _erase_piece(self, erasing: erasure.Erasure, connection: Connection) -> bool:
        more = erasing.erase_piece(connection)
        if erasing.drops_index:
            self.writing.follower.forget()
        return more

    def _finish_erasure(self, connection: Connection) -> None:
        if self._erasing or not erasure.is_small(connection):
            erasure.overwrite_log(connection)
        elif erasure.leaves_traces(connection):
            erasure.rewrite(connection, self.name)

    async def close(self) -> None:
        """Close both connections, the writing one last, so that the write-ahead log is merged into the file."""
        try:
            await self._reader.close()
        finally:
            if self._writer is not None:
                await self._writer.close()

    @property
    def is_read_only(self) -> bool:
        """Whether the database was opened for reading only."""
        return self._writer is None

    @property
    def writing(self) -> WritingThread:
        """The thread that writes. Raises `StoreError` if the database was opened for reading only."""
        if self._writer is None:
            raise StoreError(f"{self.name} was opened for reading only.")
        return self._writer


async def _reader(address: Address, opening: Opening) -> ConnectionThread:
    thread = ConnectionThread(Worker(address.name))
    await thread.open(opening)
    return thread


def _within_transaction(work: Callable[[Connection], T], connection: Connection) -> T:
    with within(connection):
        return work(connection)


def open_for_writing(address: Address, busy_timeout: float, undo: ExitStack) -> Connection:
    """Open the connection that writes. A missing file is created; the tables are migrated if they are older.

    Whose file it is is checked before the lock is taken, and again behind it, before anything in the file changes.
    What closes the connection is left on `undo`. Raises `StoreError`.
    """
    if address.path is not None:
        _create_file(address, address.path)
    with closing(connect(address, "rw", busy_timeout)) as look:
        recognise(look, address)
    undo.enter_context(exclusive_use(address))
    driver = undo.enter_context(closing(connect(address, "rw", busy_timeout)))
    revision = recognise(driver, address)
    connection = undo.enter_context(configured(driver, "rw"))
    migrate(connection, revision)
    erasure.complete(connection, address.name)
    return connection


def open_for_reading(address: Address, busy_timeout: float, undo: ExitStack) -> Connection:
    """Open a connection that only reads. Nothing is created, migrated or locked. Raises `StoreError`."""
    if address.path is None:
        raise StoreError("A new database in memory holds nothing that could be read.")
    try:
        exists = address.path.exists()
    except OSError as error:
        raise StoreError(f"{address.name} cannot be read: its folder does not allow it.") from error
    if not exists:
        raise StoreError(f"There is no database to read: {address.name}.")
    _check_not_a_folder(address, address.path)
    driver, revision = _connect_to_read(address, address.path, busy_timeout, undo)
    if revision != HEAD:
        raise StoreError(f"{address.name} is not ready to be read; an engine that opens it once makes it so.")
    return undo.enter_context(configured(driver, "ro"))


def _connect_to_read(
    address: Address, path: Path, busy_timeout: float, undo: ExitStack
) -> tuple[sqlite3.Connection, str | None]:
    """Return a connection that only reads, and the revision of the tables.

    SQLite wants to make its index of the write-ahead log beside the file, even to read. In a folder where nothing can
    be made, nobody writes to the file either, so without a log it is read as what does not change.
    """
    driver = undo.enter_context(closing(connect(address, "ro", busy_timeout)))
    try:
        return driver, recognise(driver, address)
    except sqlite3.OperationalError as error:
        log = Path(f"{path}-wal")
        if not cannot_be_made(error) or os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
    driver = undo.enter_context(closing(connect(address, "immutable", busy_timeout)))
    return driver, recognise(driver, address)


def missing_marks(address: Address) -> tuple[str, ...]:
    """Return what the file lacks that marks it as a database of turnwise, although it holds its tables."""
    if address.path is None or not address.path.is_file():
        return ()
    with closing(connect(address, "ro", 0)) as driver:
        try:
            return file.missing_marks(driver)
        except sqlite3.DatabaseError:
            return ()  # whoever opens it says why it cannot be read


def set_marks(address: Address) -> None:
    """Give the file the marks that it lacks. Raises `StoreError`."""
    with (
        translated(address.name),
        exclusive_use(address),
        closing(connect(address, "rw", 0)) as driver,
        writing(driver),
    ):
        file.set_marks(driver)


def _create_file(address: Address, path: Path) -> None:
    """Create the file if there is none, readable by its owner only. SQLite gives the files beside it the same mode."""
    _check_not_a_folder(address, path)
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise StoreError(f"The folder of {address.name} does not exist.") from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be created: its folder does not allow it.") from error


def _check_not_a_folder(address: Address, path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{address.name} is a folder, not a database.")
