"""Where a database is: in a file, or in the memory of this process.

An address is given as a path or a URL. It is resolved to the file once, so that a change of the working directory or a
symbolic link does not make two databases of one.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ....states.errors import StoreError

MEMORY = ":memory:"


@dataclass(frozen=True)
class Address:
    """The `name` of a database as its user wrote it, and the `path` of its file; None is the memory of this process."""

    name: str
    path: Path | None = None

    @classmethod
    def of(cls, url: str | Path) -> Address:
        """Parse a path (`dinner.db`), a URL (`sqlite:///dinner.db`), or `:memory:` or `sqlite://` for the memory.

        Raises `StoreError` for any other URL, and for what cannot be the name of a file.
        """
        if not _can_be_a_name(url):
            raise StoreError("The address of the database is neither a path nor a URL.")
        database = _database_of(url) if isinstance(url, str) and "://" in url else url
        if database == MEMORY:
            return cls("The database in memory")
        try:
            return cls(str(database), Path(database).resolve())
        except (OSError, RuntimeError) as error:  # Python up to 3.12 raises RuntimeError for a loop of symbolic links
            raise StoreError(f"{database} does not lead to a file: its symbolic links go in a circle.") from error


def _can_be_a_name(url: object) -> bool:
    """Whether this can be the name of a file."""
    if not isinstance(url, str | Path) or not str(url):
        return False
    try:
        Path(url).stat()
    except (OSError, ValueError) as error:
        return isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG
    return True


def _database_of(text: str) -> str:
    """Return the part of a SQLite URL that names the database. Other URLs may hold a password, so no error repeats
    one."""
    url = _parsed(text)
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"Conversations are kept in SQLite files; {url.get_backend_name()} is not supported.")
    if url.host or url.query or url.database == "":
        raise StoreError(f"{text} does not name a file; a file is written like this: sqlite:///dinner.db")
    return url.database or MEMORY


def _parsed(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError("The address of the database is neither a path nor a URL.") from None
