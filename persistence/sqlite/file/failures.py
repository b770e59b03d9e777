"""Translates the errors of the database driver into sentences for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from ....states.errors import InvalidInput
from ...errors import StorageFailed

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
_UNKNOWN = "it reported an unexpected error"
_PRIMARY = 0xFF
"""The lowest byte of a SQLite result code is its kind; the bytes above it are details."""

FAILURES = (DBAPIError, sqlite3.Error, UnicodeDecodeError)
"""What the driver raises. The last is raised when it cannot decode SQLite's message, which quotes what is damaged."""


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise what the driver raises in this block as `StorageFailed`, about the database called `name`; and
    `InvalidInput` for a text that no database can hold, such as an id from a command line that is not UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidInput("The text contains a lone surrogate, so it can neither be stored nor looked for.") from error
    except FAILURES as error:
        raise as_storage_failure(name, error) from (error.orig if isinstance(error, DBAPIError) else error)


def as_storage_failure(name: str, error: BaseException) -> BaseException:
    """Return what the driver raised as `StorageFailed`, about the database called `name`; any other error as it is."""
    if not isinstance(error, FAILURES):
        return error
    cause = error.orig if isinstance(error, DBAPIError) else error
    damaged = isinstance(error, UnicodeDecodeError)
    failed = StorageFailed(_sentence(name, "it is damaged" if damaged else _CAUSES.get(_code(cause), _UNKNOWN)))
    failed.__cause__ = cause
    return failed


def is_locked(error: BaseException) -> bool:
    """Whether the error says that another program held the database locked for too long."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def cannot_be_made(error: BaseException) -> bool:
    """Whether the error says that a file could not be opened or made, or that nothing may be written."""
    return _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _code(error: BaseException | None) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY


def _sentence(name: str, cause: str) -> str:
    return f"{name} cannot be used now: {cause}."
