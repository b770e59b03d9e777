"""The SQL that finds texts: by keywords, and by the moments at which they were said.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from ....states.values.acts import FoundText, MemoryQuery, MemoryScope
from ...records.codec import from_microseconds, to_microseconds
from ...records.text_list import MAX_RECENT
from . import text_index
from .expressions import expressions
from .scopes import Group, group_of
from .text_index import NAME, TEXT

MAX_RANKED = 3000
"""How many of the texts that hold a keyword are ranked: the newest, for each keyword. Chosen so that a word that almost
every text holds costs some milliseconds, and does not crowd out a rare one."""

MAX_FOUND = 1000
"""How many texts a search returns at most, whatever is asked for."""

IN_GROUP = """texts.scope = :number AND (:only IS NULL OR texts.conversation = :only)
AND (texts.conversation IS NOT :current OR texts.turn < :turn)"""
"""The condition that a text is in the scope. `_TEXT` compares the owner itself, too."""

_HITS = f"SELECT {NAME}.rowid AS id, bm25({NAME}) AS score FROM {NAME}"
_WITHIN = f"""CROSS JOIN texts ON texts.id = {NAME}.rowid AND {IN_GROUP} AND texts.at BETWEEN :since AND :until"""
_NEWEST = f"ORDER BY {NAME}.rowid DESC LIMIT {MAX_RANKED}"
_RECENT = f"""
SELECT id FROM texts WHERE {IN_GROUP} AND texts.at >= :since ORDER BY texts.at DESC, texts.id DESC LIMIT {MAX_RECENT}
"""
_TEXT = f"""
SELECT conversations.id, texts.turn, texts.at, texts.by_user, {TEXT}
FROM texts JOIN conversations ON key = texts.conversation
WHERE texts.id = :id AND {IN_GROUP} AND conversations.owner IS :owner
"""
"""Texts are read one by one, until there are enough, since to read one takes longer than to rank it."""


class Window(NamedTuple):
    """The moments between which a text must have been said, both included, in microseconds since 1970."""

    since: int
    until: int

    @classmethod
    def of(cls, since: datetime | None, until: datetime | None) -> Window:
        """Return the window between two moments, of which None is no bound."""
        return cls(
            ALWAYS.since if since is None else to_microseconds(since),
            ALWAYS.until if until is None else to_microseconds(until),
        )


ALWAYS = Window(-(2**63), 2**63 - 1)
"""The window without bounds."""


def search(driver: sqlite3.Connection, query: MemoryQuery) -> tuple[FoundText, ...]:
    """Return the texts that hold keywords of the query, the best ones first."""
    group = group_of(driver, query.scope)
    if group is None or not text_index.exists(driver):
        return ()
    wanted = {f"keyword{number}": found for number, found in enumerate(expressions(group.number, query.keywords))}
    if not wanted:
        return ()
    window = Window.of(query.since, query.until)
    given = {**group._asdict(), **window._asdict(), **wanted}
    rows = driver.execute(_ranking(wanted, window), given)
    return texts_of(driver, group, (number for (number,) in rows), query.limit)


def _ranking(keywords: Iterable[str], window: Window) -> str:
    """Return the statement that ranks what holds the keywords in these parameters. The rank of a text is the sum of its
    ranks for each of them, as FTS5 itself would compute it."""
    within = "" if window == ALWAYS else _WITHIN
    hits = (f"SELECT * FROM ({_HITS} {within} WHERE {NAME} MATCH :{each} {_NEWEST})" for each in keywords)
    return f"SELECT id FROM ({' UNION ALL '.join(hits)}) GROUP BY id ORDER BY sum(score), id DESC"


def recent(driver: sqlite3.Connection, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
    """Return the texts that were said at `since` or later, oldest first."""
    group = group_of(driver, scope)
    if group is None:
        return ()
    rows = driver.execute(_RECENT, {**group._asdict(), "since": to_microseconds(since)}).fetchall()
    return texts_of(driver, group, (number for (number,) in reversed(rows)), MAX_RECENT)


def texts_of(driver: sqlite3.Connection, group: Group, numbers: Iterable[int], limit: int) -> tuple[FoundText, ...]:
    """Return the texts with these numbers, in their order, until there are enough.

    A text that a fork has in common with its original is returned once. One that is not in the group, or that damage
    has made unreadable, is passed over.
    """
    found: dict[tuple[int, bool, str], FoundText] = {}
    most, given = min(limit, MAX_FOUND), group._asdict()
    for number in numbers if most > 0 else ():
        row = driver.execute(_TEXT, {**given, "id": number}).fetchone()
        if row is None or type(row[-1]) is not str:
            continue
        conversation_id, turn, at, by_user, text = row
        role: Literal["user", "assistant"] = "user" if by_user else "assistant"
        found.setdefault((at, by_user, text), FoundText(conversation_id, turn, from_microseconds(at), role, text))
        if len(found) >= most:
            break
    return tuple(found.values())
