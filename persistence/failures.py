"""What a disk or a database says when it fails, in words for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from .errors import StorageFailed

_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "another program holds it locked",
    sqlite3.SQLITE_LOCKED: "another program holds it locked",
    sqlite3.SQLITE_READONLY: "it may only be read",
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is damaged",
}
_PRIMARY = 0xFF
"""SQLite's result codes are a kind in the lowest byte, and details above it."""


@contextmanager
def told(name: str) -> Iterator[None]:
    """Raise whatever the driver raises as `StorageFailed`, about the database called `name`."""
    try:
        yield
    except DBAPIError as error:
        raise _failure(name, error.orig) from error.orig
    except sqlite3.Error as error:
        raise _failure(name, error) from error
    except UnicodeDecodeError as error:
        # The driver could not even read SQLite's complaint, which quotes what is broken.
        raise StorageFailed(_sentence(name, "it is damaged")) from error


def _failure(name: str, error: BaseException | None) -> StorageFailed:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    return StorageFailed(_sentence(name, _CAUSES.get(code, "it does not do what it was asked")))


def _sentence(name: str, cause: str) -> str:
    return f"{name} cannot be used now: {cause}."
