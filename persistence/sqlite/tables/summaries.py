"""The SQL of lists: pages of conversations, selected and with the one that moved last first.

A page is found by the short columns of `conversations` and by indexes; titles, metadata and origins are read only for
the conversations of the page. A list reads no logs.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, Select, func, select, tuple_

from ....states.errors import UnknownConversation
from .schema import conversations, details, forks, metadata_entries


class SummaryRow(NamedTuple):
    """A conversation in a list. `metadata` is a JSON object, or None if there is none."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
    owner: str | None
    origin: str | None
    origin_seq: int | None
    title: str
    metadata: str | None


class Selection(NamedTuple):
    """Which conversations a list holds: those that have all of this. `entries` are digests of metadata; `before` is the
    id of the last conversation of the page before."""

    owner: str | None = None
    entries: tuple[bytes, ...] = ()
    state: str | None = None
    before: str | None = None


_NEWEST_FIRST = (conversations.c.updated_at.desc(), conversations.c.key.desc())
_SUMMARIES = (
    select(
        conversations.c.id,
        conversations.c.state_type,
        conversations.c.waits,
        conversations.c.updated_at,
        conversations.c.owner,
        forks.c.origin,
        forks.c.seq,
        func.coalesce(details.c.title, details.c.first_message, ""),
        details.c.metadata,
    )
    .outerjoin_from(conversations, forks)
    .outerjoin(details)
    .order_by(*_NEWEST_FIRST)
)
_POSITION = select(conversations.c.updated_at, conversations.c.key)


def read(connection: Connection, selection: Selection, limit: int | None) -> tuple[SummaryRow, ...]:
    """Return conversations, the one that moved last first. Raises `UnknownConversation` for `before`."""
    page = select_page(connection, selection)
    statement = _SUMMARIES.where(conversations.c.key.in_(page.order_by(*_NEWEST_FIRST).limit(limit)))
    return tuple(SummaryRow(*row) for row in connection.execute(statement))


def select_page(connection: Connection, selection: Selection) -> Select[tuple[int]]:
    """Return the statement that finds the keys of these conversations. Raises `UnknownConversation` for `before`."""
    statement = select(conversations.c.key)
    if selection.owner is not None:
        statement = statement.where(conversations.c.owner == selection.owner)
    if selection.entries:
        statement = statement.where(conversations.c.key.in_(_having(selection.entries)))
    if selection.state is not None:
        statement = statement.where(conversations.c.state_type == selection.state)
    if selection.before is not None:
        position = connection.execute(_POSITION.where(conversations.c.id == selection.before)).one_or_none()
        if position is None:
            raise UnknownConversation(selection.before)
        statement = statement.where(tuple_(conversations.c.updated_at, conversations.c.key) < tuple_(*position))
    return statement


def _having(entries: tuple[bytes, ...]) -> Select[tuple[int]]:
    """Return the statement that finds the conversations with all these entries in their metadata."""
    found = select(metadata_entries.c.conversation).where(metadata_entries.c.entry.in_(entries))
    return found.group_by(metadata_entries.c.conversation).having(func.count() == len(entries))
