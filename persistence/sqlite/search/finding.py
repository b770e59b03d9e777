"""The SQL that finds texts: by keywords, and by the moments at which they were said.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from ....states.values.memory import FoundText, MemoryQuery, MemoryScope
from ...records.codec import from_microseconds, to_microseconds
from . import text_index
from .scopes import Group, group_of
from .text_index import NAME, TEXT
from .words import expression

MOST_RANKED = 5000
"""How many of the texts that hold a keyword are ranked: the newest. Chosen so that a word that almost every text holds
costs some milliseconds."""

MOST_FOUND = 1000
"""How many texts a search returns at most, whatever is asked for."""

MOST_RECENT = 200
"""How many of the texts of the last minutes are returned: more than people say in that time."""

SMALLEST, LARGEST = -(2**63), 2**63 - 1

IN_GROUP = """texts.scope = :number AND (:only IS NULL OR texts.conversation = :only)
AND (texts.conversation IS NOT :current OR texts.turn < :turn)"""
"""The condition that a text is in the scope. `IS_OWNED` compares the owner itself."""

IS_OWNED = "conversations.owner IS :owner"

_RESULT = f"conversations.id, texts.turn, texts.at, texts.by_user, {TEXT}"
_SEARCH = f"""
SELECT {_RESULT} FROM (
    SELECT texts.id AS hit, bm25({NAME}) AS score FROM {NAME} CROSS JOIN texts ON texts.id = {NAME}.rowid
    WHERE {NAME} MATCH :expression AND {IN_GROUP} AND texts.at BETWEEN :since AND :until
    ORDER BY {NAME}.rowid DESC LIMIT {MOST_RANKED}
) CROSS JOIN texts ON texts.id = hit JOIN conversations ON key = texts.conversation
WHERE {IS_OWNED} ORDER BY score, texts.at DESC, texts.id DESC
"""
_RECENT = f"""
SELECT {_RESULT} FROM texts JOIN conversations ON key = texts.conversation
WHERE {IN_GROUP} AND {IS_OWNED} AND texts.at >= :since ORDER BY texts.at DESC, texts.id DESC LIMIT {MOST_RECENT}
"""
_BY_NUMBER = f"""
SELECT {_RESULT} FROM texts JOIN conversations ON key = texts.conversation WHERE texts.id = :id AND {IS_OWNED}
"""


class Window(NamedTuple):
    """The moments between which a text must have been said, both included, in microseconds since 1970."""

    since: int
    until: int

    @classmethod
    def of(cls, since: datetime | None, until: datetime | None) -> Window:
        """Return the window between two moments, of which None is no bound."""
        return cls(
            SMALLEST if since is None else to_microseconds(since), LARGEST if until is None else to_microseconds(until)
        )


def search(driver: sqlite3.Connection, query: MemoryQuery) -> tuple[FoundText, ...]:
    """Return the texts that hold keywords of the query, the best ones first."""
    group = group_of(driver, query.scope)
    if group is None or query.limit <= 0 or not text_index.exists(driver):
        return ()
    found = expression(group.number, query.keywords)
    if found is None:
        return ()
    window = Window.of(query.since, query.until)
    rows = driver.execute(_SEARCH, {**group._asdict(), **window._asdict(), "expression": found})
    return different(rows, query.limit)


def recent(driver: sqlite3.Connection, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
    """Return the texts that were said at `since` or later, oldest first."""
    group = group_of(driver, scope)
    if group is None:
        return ()
    rows = driver.execute(_RECENT, {**group._asdict(), "since": to_microseconds(since)}).fetchall()
    return different(reversed(rows), MOST_RECENT)


def by_numbers(driver: sqlite3.Connection, group: Group, numbers: Iterable[int], limit: int) -> tuple[FoundText, ...]:
    """Return the texts with these numbers, in their order."""
    found = (driver.execute(_BY_NUMBER, {"id": number, "owner": group.owner}).fetchone() for number in numbers)
    return different((row for row in found if row is not None), limit)


def different(rows: Iterable[tuple[str, int, int, bool, object]], limit: int) -> tuple[FoundText, ...]:
    """Return the texts in these rows, until there are enough. A text that a fork has in common with its original is
    returned once, and one that damage has made unreadable is passed over."""
    found: dict[tuple[int, bool, str], FoundText] = {}
    for conversation_id, turn, at, by_user, text in rows:
        if type(text) is str and (at, by_user, text) not in found:
            moment = from_microseconds(at)
            found[at, by_user, text] = FoundText(
                conversation_id, turn, moment, "user" if by_user else "assistant", text
            )
            if len(found) >= min(limit, MOST_FOUND):
                break
    return tuple(found.values())
