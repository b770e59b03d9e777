"""An open database: one thread that writes, and one that reads beside it.

SQLite lets one writer work at a time and any number of readers beside it, so a list of conversations does not wait for
a commit, and a commit does not wait for a long read. A database in memory has one connection, which does both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from ...states.errors import StoreError
from ..errors import TracesLeft
from ..records.codec import EncodedStep
from ..records.outbox import Outgoing
from .address import Address
from .connection import configured, connect
from .identity import READABLE, recognise
from .lock import exclusive_use
from .log_position import LogPosition
from .migrate import migrate
from .receipts import Receipt
from .thread import ConnectionThread, Opening, Worker
from .transaction import driver_of, within
from .writer import WritingThread

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds to wait for a lock that another program holds on the file. Ours: SQLite's driver for Python has the same."""


class Database:
    """A database file, open. Made by `open`; whoever opens it must `close` it."""

    def __init__(self, address: Address, reader: ConnectionThread, writer: WritingThread | None) -> None:
        self.name = address.name
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str | Path, *, read_only: bool = False, busy_timeout: float = BUSY_TIMEOUT) -> Database:
        """Open the database at `url`, and make it if there is none; `Store.open` says the rest."""
        address = Address.of(url)
        reading = partial(_open_for_reading, address, busy_timeout)
        if read_only:
            return cls(address, await _reader(address, reading), None)
        writer = WritingThread.start(address.name)
        await writer.open(partial(_open_for_writing, address, busy_timeout))
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

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` within one transaction that writes. If `work` raises, all of it is undone."""
        return await self.writing.run(partial(_within_transaction, work))

    async def append(self, position: LogPosition, step: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        """Store a step behind `place`, which then is where the conversation stands.

        Steps that wait are stored together; among them and other work that writes the order stays. Raises
        `StoreConflict`; `ConversationLog.append` says the rest.
        """
        await self.writing.append(position, step, outgoing)

    def wake(self) -> None:
        """Wake the writing thread, because a step is about to come."""
        self.writing.wake()

    def note(self, receipt: Receipt) -> None:
        """Store what became of a delivery, with the next commit or soon. Does not wait."""
        self.writing.note(receipt)

    async def flush(self) -> None:
        """Wait until all receipts handed in so far are stored, or could not be for now."""
        if self._writer is not None:
            await self._writer.flush()

    async def erase(self, work: Callable[[Connection], bool]) -> bool:
        """Do `work`, which deletes something, within a transaction, and return whether it found what to delete.

        If it did, the whole file is written anew and the write-ahead log emptied. `secure_delete` alone would not do:
        rows that SQLite once moved from one page to another leave copies in the gaps. Raises `TracesLeft`.
        """
        return await self.writing.run(partial(_erase, self.name, work))

    async def close(self) -> None:
        """Close both connections, the writing one last, so that the write-ahead log goes into the file and away."""
        try:
            await self._reader.close()
        finally:
            if self._writer is not None:
                await self._writer.close()

    @property
    def writing(self) -> WritingThread:
        """The thread with the connection that writes. Raises `StoreError` if the database is open for reading only."""
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


def _erase(name: str, work: Callable[[Connection], bool], connection: Connection) -> bool:
    if not _within_transaction(work, connection):
        return False
    traces = TracesLeft(f"The conversation is deleted, but traces of it stay in {name} until the next one is deleted.")
    try:
        driver = driver_of(connection)
        driver.execute("VACUUM")
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        raise traces from error
    if busy:
        raise traces
    return True


def _open_for_writing(address: Address, busy_timeout: float, undo: ExitStack) -> Connection:
    """Look whose file it is before anything is changed; take the lock before the tables are."""
    if address.path is not None:
        _make_file(address, address.path)
    with closing(connect(address, "rw", busy_timeout)) as look:
        recognise(look, address)
    undo.enter_context(exclusive_use(address))
    driver = undo.enter_context(closing(connect(address, "rw", busy_timeout)))
    revision = recognise(driver, address)
    connection = undo.enter_context(configured(driver, "rw"))
    migrate(connection, revision)
    return connection


def _open_for_reading(address: Address, busy_timeout: float, undo: ExitStack) -> Connection:
    if address.path is None:
        raise StoreError("A new database in memory holds nothing that could be read.")
    if not address.path.exists():
        raise StoreError(f"There is no database to read: {address.name}.")
    _check_no_folder(address, address.path)
    driver = undo.enter_context(closing(connect(address, "ro", busy_timeout)))
    if recognise(driver, address) not in READABLE:
        raise StoreError(f"{address.name} is not ready to be read; an engine that opens it once makes it so.")
    return undo.enter_context(configured(driver, "ro"))


def _make_file(address: Address, path: Path) -> None:
    """Make the file if there is none, for its owner's eyes only; SQLite gives the files beside it the same rights."""
    _check_no_folder(address, path)
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise StoreError(f"The folder of {address.name} does not exist.") from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be made: its folder does not allow it.") from error


def _check_no_folder(address: Address, path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{address.name} is a folder, not a database.")
