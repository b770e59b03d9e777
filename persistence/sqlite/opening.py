"""Opens the connections to a database file: one that writes, and one that reads beside it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

from sqlalchemy import Connection

from ...states.errors import StoreError
from . import erasure
from .file import identity
from .file.address import Address
from .file.connection import configured, connect
from .file.failures import cannot_be_made, translated
from .file.identity import READABLE, recognise
from .file.lock import exclusive_use
from .file.transaction import writing
from .search.stand_ins import add_text_views
from .tables.migrate import migrate
from .tables.older_tables import add_views


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
    driver, revision = _reader(address, address.path, busy_timeout, undo)
    if revision is None or revision not in READABLE:
        raise StoreError(f"{address.name} is not ready to be read; an engine that opens it once makes it so.")
    if revision < "0006":
        add_text_views(driver)
    add_views(driver, revision)
    return undo.enter_context(configured(driver, "ro"))


def _reader(
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
            return identity.missing_marks(driver)
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
        identity.set_marks(driver)


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
