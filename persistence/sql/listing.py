"""Lists of conversations.

A page of a list holds the conversations that moved last first. It is found by the short columns of `conversations` and
by indexes; titles, metadata and origins are read only for the conversations of the page. A list reads no logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, func, literal_column, select, tuple_

from ...states.errors import UnknownConversation
from ..codec import from_microseconds
from ..errors import Damaged
from ..records import Origin
from ..summaries import HEADER_COLUMNS, ConversationFilter, Summary, metadata_entry, place_of, read_header
from .queries import LARGEST
from .schema import conversations, details, forks, metadata_entries
from .statements import Driver, Statement, limited, prepared


class SummaryRow(NamedTuple):
    """A conversation in a list. `header` are the columns of its header."""

    id: str
    state_type: str
    waits: int
    updated_at: int
    owner: str | None
    origin: str | None
    origin_seq: int | None
    wakes_at: int | None
    seq: int
    first_message: str | None
    header: tuple[str | None, ...]


_NEWEST_FIRST = (conversations.c.updated_at.desc(), conversations.c.key.desc())
_IN_POSTGRESQL = {
    'ORDER BY conversations.updated_at DESC, conversations."key" DESC': (
        'ORDER BY conversations.updated_minute DESC, conversations.updated_at DESC, conversations."key" DESC'
    )
}
"""There an index has the order of the minutes, and only the conversations of a minute are sorted."""
_BEHIND_IN_POSTGRESQL = {
    '(conversations.updated_at, conversations."key") < (%s, %s)': (
        '(conversations.updated_minute, conversations.updated_at, conversations."key") < '
        "(SELECT moved / 60000000, moved, place.key FROM (VALUES (%s, %s)) AS place (moved, key))"
    )
}
_SUMMARIES = (
    select(
        conversations.c.id,
        conversations.c.state_type,
        conversations.c.waits,
        conversations.c.updated_at,
        conversations.c.owner,
        forks.c.origin,
        forks.c.seq,
        conversations.c.wakes_at,
        conversations.c.seq,
        details.c.first_message,
        *(details.c[name] for name in HEADER_COLUMNS),
    )
    .outerjoin_from(conversations, forks)
    .outerjoin(details)
    .order_by(*_NEWEST_FIRST)
)
_BEFORE_HEADER = len(SummaryRow._fields) - 1
_POSITION = prepared(
    select(conversations.c.updated_at, conversations.c.key).where(conversations.c.id == bindparam("conversation_id")),
    "conversation_id",
)
_ENTRY = "entry_"
"""What the names of parameters for entries of metadata begin with."""


def read_summaries(driver: Driver, wanted: ConversationFilter) -> tuple[Summary, ...]:
    """Return conversations, the one that moved last first. Raises `UnknownConversation` for `before`, and `Damaged`."""
    given = dict(_parameters(driver, wanted))
    statement = _page(frozenset(given))
    rows = driver.execute(statement, [given[name] for name in statement.parameters])
    return tuple(_summary(SummaryRow._make((*row[:_BEFORE_HEADER], row[_BEFORE_HEADER:]))) for row in rows)


def _parameters(driver: Driver, wanted: ConversationFilter) -> Iterator[tuple[str, Any]]:
    """Yield the names and the values of what these conversations are selected by."""
    for name in ("owner", "state", "parent", "works_for", "limit"):
        value = getattr(wanted, name)
        if value is not None:
            yield name, value
    if wanted.role is not None:  # that of most conversations is not stored
        yield ("no_role" if wanted.role == "foreground" else "role"), wanted.role
    for number, (name, value) in enumerate((wanted.metadata or {}).items()):
        yield f"{_ENTRY}{number}", metadata_entry(name, value)
    if wanted.before is not None:
        yield from zip(("moved", "key"), _position(driver, wanted.before), strict=True)


def _position(driver: Driver, before: str) -> tuple[int, int]:
    """Return the place behind which a page begins, by moment and key. Raises `UnknownConversation`."""
    place = place_of(before)
    wanted = before if place is None else place.conversation_id
    found = driver.execute(_POSITION, (wanted,)).fetchone()
    if place is not None:
        return place.updated_at, LARGEST if found is None else found[1]
    if found is None:
        raise UnknownConversation(before)
    return found[0], found[1]


@lru_cache(maxsize=64)
def _page(given: frozenset[str]) -> Statement:
    """Return the statement that reads a page of conversations which are selected by these parameters."""
    page = select(conversations.c.key).where(*_conditions(given)).order_by(*_NEWEST_FIRST)
    if "limit" in given:
        page = limited(page)
    in_postgresql = _IN_POSTGRESQL | (_BEHIND_IN_POSTGRESQL if "moved" in given else {})
    return Statement.of(_SUMMARIES.where(conversations.c.key.in_(page)), in_postgresql)


def _conditions(given: frozenset[str]) -> Iterator[ColumnElement[bool]]:
    key = conversations.c.key
    if "owner" in given:
        yield conversations.c.owner == bindparam("owner")
    if "state" in given:
        yield conversations.c.state_type == bindparam("state")
    for column in (details.c.parent, details.c.works_for, details.c.role):
        if column.name in given:
            yield key.in_(select(details.c.conversation).where(column == bindparam(column.name)))
    if "no_role" in given:
        its_role = select(details.c.role).where(details.c.conversation == key, details.c.role.is_not(None))
        yield ~its_role.exists()
    if entries := sorted(name for name in given if name.startswith(_ENTRY)):
        yield key.in_(_having(entries))
    if "moved" in given:
        yield tuple_(conversations.c.updated_at, key) < tuple_(bindparam("moved"), bindparam("key"))


def _having(entries: list[str]) -> Select[tuple[int]]:
    """Return the statement that finds the conversations with all these entries in their metadata."""
    is_wanted = metadata_entries.c.entry.in_([bindparam(name) for name in entries])
    found = select(metadata_entries.c.conversation).where(is_wanted)
    all_of_them: ColumnElement[int] = literal_column(str(len(entries)))
    return found.group_by(metadata_entries.c.conversation).having(func.count() == all_of_them)


def _summary(row: SummaryRow) -> Summary:
    try:
        header = read_header(row.header)
        return Summary(
            **{**header, "owner": row.owner, "title": header.get("title") or row.first_message or ""},
            id=row.id,
            state=row.state_type,
            busy=bool(row.waits),
            updated_at=from_microseconds(row.updated_at),
            origin=None if row.origin is None or row.origin_seq is None else Origin(row.origin, row.origin_seq),
            wakes_at=None if row.wakes_at is None else from_microseconds(row.wakes_at),
            seq=row.seq,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise Damaged(0, "The list of the conversations cannot be read: the database is damaged.") from error
