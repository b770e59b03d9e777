"""What can be wrong with a SQLite file as a whole, and which conversations a damaged one still holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ..records import StorageFault
from ..sql.repairs import orphans
from ..sql.schema import events, text_positions, texts
from .file import driver_of

_FINDINGS_OF_SQLITE = 20
"""How many faults SQLite reports at most: enough to show what kind of damage it is."""

_CHECK = f"PRAGMA integrity_check({_FINDINGS_OF_SQLITE})"


def faults(connection: Connection) -> tuple[StorageFault, ...]:
    """Return what SQLite itself reports, and rows that belong to no conversation."""
    driver = driver_of(connection)
    found = [
        StorageFault(f"SQLite finds the file damaged: {line}")
        for (line,) in driver.execute(_CHECK).fetchall()
        if line != "ok"
    ]
    (is_erasing,) = driver.execute("PRAGMA user_version").fetchone()
    of_the_deleted = (events, texts, text_positions) if is_erasing else ()
    return (*found, *orphans(driver, without=of_the_deleted))


# --- conversations that damage hides

_TABLE = "SELECT key, id FROM conversations NOT INDEXED"
_INDEX = "SELECT key, id FROM conversations INDEXED BY sqlite_autoindex_conversations_1"
_ROW = "SELECT key, id FROM conversations NOT INDEXED WHERE key = ?"
_LOOK_UP = "SELECT key FROM conversations WHERE id = ?"
_LARGEST_KEY = "SELECT max(conversation) FROM events"

MOST_KEYS = 10_000_000
"""Up to which key conversations are looked for one by one: damage may make any number of the largest."""


class Survey(NamedTuple):
    """The ids of the conversations that can be read, in the order in which these were created; the keys of those that
    the index of ids does not find; and a fault for each whose id is not certain or that is not found by it."""

    ids: tuple[str, ...]
    hidden: dict[str, int]
    faults: tuple[StorageFault, ...]


def survey(connection: Connection) -> Survey:
    """Look for all conversations. Reads as much as it can. Not for a transaction.

    SQLite finds a conversation by an index of ids, and lists conversations by reading the table. Damage of one of the
    two hides a conversation there, or gives it another id. So both are read, row by row where a page cannot be read,
    and a conversation counts as found if it can be read under an id.
    """
    driver = driver_of(connection)
    indexed, listed = dict(_rows(driver, _INDEX)[0]), dict[int, Any]()
    rows, is_whole = _rows(driver, _TABLE)
    listed.update(rows)
    if not is_whole:  # behind a page that cannot be read, too, there are rows
        numbers = [row[0] for row in _rows(driver, _LARGEST_KEY)[0] if type(row[0]) is int]
        for key in range(1, min(max(*numbers, *indexed, *listed, 0, 0), MOST_KEYS) + 1):
            listed.update(_rows(driver, _ROW, key)[0])
    found: dict[str, None] = {}
    hidden: dict[str, int] = {}
    faults: list[StorageFault] = []
    for key in sorted(indexed.keys() | listed.keys()):
        ids = [each for each in dict.fromkeys((listed.get(key), indexed.get(key))) if each is not None]
        known = next((each for each in ids if _finds(driver, each, key)), None)
        if known is None and _is_id(listed.get(key)):
            hidden[listed[key]] = key
        found.update(dict.fromkeys((known,) if known is not None else hidden.keys() - found.keys()))
        if known is None or len(ids) > 1:
            faults.append(StorageFault(_sentence(ids, known)))
    return Survey(tuple(found), hidden, tuple(faults))


def _is_id(found: object) -> bool:
    return type(found) is str and found == _shown(found)


def _sentence(ids: Sequence[object], known: str | None) -> str:
    shown = " or ".join(map(_shown, ids))
    if known is None:
        return f"The conversation {shown} is not found by its id: the index of ids, or the id, is damaged."
    return f"The id of the conversation {shown} is damaged; it can be read as {_shown(known)}."


def _shown(found: object) -> str:
    return str(found).encode(errors="replace").decode()


def _finds(driver: sqlite3.Connection, conversation_id: object, key: int) -> bool:
    """Whether the conversation with this key is found by this id."""
    return _is_id(conversation_id) and _rows(driver, _LOOK_UP, conversation_id)[0] == [(key,)]


def _rows(driver: sqlite3.Connection, sql: str, *parameters: object) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the rows up to the first that cannot be read, and whether all could be read."""
    rows: list[tuple[Any, ...]] = []
    with closing(driver.cursor()) as cursor:
        try:
            rows.extend(iter(cursor.execute(sql, parameters)))
        except sqlite3.DatabaseError:
            return rows, False
        return rows, True
