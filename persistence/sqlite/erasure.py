"""Deletes conversations so that nothing of them is left in the bytes of the file, and nobody waits for that.

First a conversation is taken out of the tables, in one short transaction: then it is gone for everybody. Its texts and
its steps are overwritten after that, in pieces, between which others write. What is left then are copies in the gaps of
other pages: SQLite makes them when it moves rows, and they go only when the whole file is rewritten. A small file is
rewritten at once. A large one is when nobody waits for it: when the store closes, and if the process dies before that,
when a store opens the file again. Until it is done the file has a mark, the number `user_version` of SQLite.

The steps of a conversation that is gone belong to no row of `conversations` for a while. So no key is given to another
conversation while steps have it (`queries.add_record`).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection

from ..errors import TracesLeft
from ..sql import files as stored_files
from ..sql.schema import conversations, events, metadata, text_positions, texts
from . import search
from .file import driver_of, writing

logger: logging.Logger = logging.getLogger("turnwise.store")

SMALL = 8 * 2**20
"""The bytes of a file that is rewritten at once. Chosen so that this takes tens of milliseconds."""

PIECE = 256 * 2**10
"""The characters of the steps that one transaction overwrites; it takes one step at least."""

ROWS = 64
"""The most steps, and the most texts, that one transaction overwrites."""

_PAGES = 64
"""How many pages of the full-text index are merged in one transaction."""

_AFTERWARDS = (events, texts, text_positions)
"""The tables whose rows of a conversation are overwritten in pieces."""

_AT_ONCE = tuple(
    table.name
    for table in metadata.sorted_tables
    if table not in _AFTERWARDS and any(key.column.table is conversations for key in table.foreign_keys)
)
_STEPS = """
SELECT rowid, length(payload) + coalesce(length(effects), 0) + coalesce(length(ended), 0)
FROM events WHERE conversation = ? LIMIT ?
"""
_ABANDONED = """
WITH RECURSIVE keys (key) AS (
    SELECT min(conversation) FROM events
    UNION ALL
    SELECT (SELECT min(conversation) FROM events WHERE conversation > key) FROM keys WHERE key IS NOT NULL
)
SELECT key FROM keys WHERE key IS NOT NULL AND key NOT IN (SELECT key FROM conversations)
"""


class Begun(NamedTuple):
    """A conversation that was taken out of the tables: its key, the keys of the files that went with it, of which the
    parts are left, and the places of their bytes in the file store."""

    key: int
    files: list[int]
    places: list[str]


_ERASE_PART = """
DELETE FROM file_parts WHERE rowid = (
    SELECT rowid FROM file_parts WHERE file = ? AND file NOT IN (SELECT key FROM files) LIMIT 1
)
"""
_ABANDONED_FILES = "SELECT DISTINCT file FROM file_parts WHERE file NOT IN (SELECT key FROM files)"


def begin(connection: Connection, conversation_id: str) -> Begun | None:
    """Take a conversation out of the tables, with the files that no other one refers to, and mark the database, in one
    transaction. Returns None if there is no such conversation."""
    driver = driver_of(connection)
    with _without_cascades(driver), writing(driver):
        found = driver.execute("SELECT key FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
        if found is None:
            return None
        used = stored_files.keys_of(driver, found[0])
        for table in _AT_ONCE:
            driver.execute(f"DELETE FROM {table} WHERE conversation = ?", found)
        driver.execute("DELETE FROM conversations WHERE key = ?", found)
        places = stored_files.remove_unused(driver, used)
        _mark(driver, traces=True)
    return Begun(int(found[0]), used, places)


class Erasure:
    """The rest of a conversation that was taken out of the tables under the key `key`, and of `files`, as far as these
    are gone as well."""

    def __init__(self, key: int, files: Sequence[int] = ()) -> None:
        self.key = key
        self._files = list(files)
        self.drops_index: bool = False
        """Whether the full-text index could not forget the texts, and was dropped as a whole."""
        self._merges = True
        self._pages = -_PAGES  # a negative number begins to merge all parts of the index, a positive one goes on

    def erase_piece(self, connection: Connection) -> bool:
        """Overwrite the next piece. Returns whether there may be more. To be called within a transaction."""
        driver = driver_of(connection)
        return self._forget_texts(driver) or self._erase_steps(driver) or self._erase_part(driver)

    def _forget_texts(self, driver: sqlite3.Connection) -> bool:
        """Have the index forget some texts, or merge a part of it: until then it only notes beside the words of older
        texts that these are gone. The texts are read from the steps, so this comes first."""
        if not self._merges:
            return False
        try:
            if not search.remove_some(driver, self.key, ROWS):
                self._merges = search.exists(driver) and search.merge_some(driver, self._pages)
                self._pages = _PAGES
        except (search.TextChanged, sqlite3.DatabaseError):
            search.drop(driver)
            self.drops_index, self._merges = True, False
        return True

    def _erase_steps(self, driver: sqlite3.Connection) -> bool:
        size, rows = 0, list[tuple[int]]()
        for row, length in driver.execute(_STEPS, (self.key, ROWS)).fetchall():
            size += length if type(length) is int else 0
            if rows and size > PIECE:
                break
            rows.append((row,))
        driver.executemany("DELETE FROM events WHERE rowid = ?", rows)
        return bool(rows)

    def _erase_part(self, driver: sqlite3.Connection) -> bool:
        while self._files:
            if driver.execute(_ERASE_PART, (self._files[-1],)).rowcount:
                return True
            self._files.pop()
        return False


def leaves_traces(connection: Connection) -> bool:
    """Whether the file is marked: something of a conversation that was deleted may be left in it."""
    (mark,) = driver_of(connection).execute("PRAGMA user_version").fetchone()
    return bool(mark)


def is_small(connection: Connection) -> bool:
    """Whether the file is so small that it is rewritten at once."""
    driver = driver_of(connection)
    (pages,), (size,) = (driver.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return int(pages * size) <= SMALL


def rewrite(connection: Connection, name: str) -> None:
    """Rewrite the file and empty its write-ahead log, so that nothing is left of what was deleted before. Raises
    `TracesLeft` if another program does not allow it, or the disk has no room for a copy."""
    driver = driver_of(connection)
    try:
        driver.execute("VACUUM")
        _empty_log(driver)
        with writing(driver):
            _mark(driver, traces=False)
    except (sqlite3.Error, _LogInUse) as error:
        raise traces_left(name) from error


def traces_left(name: str) -> TracesLeft:
    """Return the error that tells that the conversation is gone, and that traces of it stay in the file for now."""
    when = "until the engine closes it, or opens it the next time"
    return TracesLeft(f"The conversation is deleted, but traces of it stay in {name} {when}.")


def overwrite_log(connection: Connection) -> None:
    """Empty the write-ahead log, which holds what was written last, unless another program reads it just now."""
    driver = driver_of(connection)
    (timeout,) = driver.execute("PRAGMA busy_timeout").fetchone()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _empty_log(driver)
    except (sqlite3.Error, _LogInUse):
        logger.debug("The write-ahead log is read, and is emptied later.")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {timeout}")


def complete(connection: Connection, name: str) -> None:
    """Finish all that was begun, when nobody waits for the store. What cannot be done now is left for the next time."""
    try:
        if not leaves_traces(connection):
            return
        driver = driver_of(connection)
        for (key,) in driver.execute(_ABANDONED).fetchall():
            _erase_all(connection, Erasure(key))
        _erase_all(connection, Erasure(0, [key for (key,) in driver.execute(_ABANDONED_FILES)]))
        rewrite(connection, name)
    except (sqlite3.Error, TracesLeft) as error:
        logger.warning("Traces of deleted conversations stay in %s for now: %s", name, error)


def _erase_all(connection: Connection, erasure: Erasure) -> None:
    driver, more = driver_of(connection), True
    while more:
        with writing(driver):
            more = erasure.erase_piece(connection)


class _LogInUse(Exception):
    """Another program reads the write-ahead log."""


def _empty_log(driver: sqlite3.Connection) -> None:
    busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise _LogInUse


def _mark(driver: sqlite3.Connection, *, traces: bool) -> None:
    driver.execute(f"PRAGMA user_version = {int(traces)}")


@contextmanager
def _without_cascades(driver: sqlite3.Connection) -> Iterator[None]:
    """Let rows be deleted without those that refer to them. SQLite changes that outside of transactions only."""
    if driver.in_transaction:
        driver.execute("ROLLBACK")
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys = ON")
