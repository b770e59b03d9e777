"""The SQL of lists: pages of conversations, selected and with the one that moved last first.

A page is found by the short columns of `conversations` and by indexes; titles, metadata and origins are read only for
the conversations of the page. A list reads no logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select, tuple_

from ....states.errors import UnknownConversation
from ....states.roles import Role
from ...records.summary import place_of
from .schema import conversations, details, forks, metadata_entries


class SummaryRow(NamedTuple):
    """A conversation in a list. `metadata` is a JSON object, or None if there is none; `role` is None for the role
    `foreground`."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
    owner: str | None
    origin: str | None
    origin_seq: int | None
    title: str
    metadata: str | None
    role: str | None
    parent: str | None
    works_for: str | None
    wakes_at: int | None
    seq: int


class Selection(NamedTuple):
    """Which conversations a list holds: those that have all of this. `entries` are digests of metadata; `before` says
    where a page begins, as `Store.list` takes it."""

    owner: str | None = None
    entries: tuple[bytes, ...] = ()
    state: str | None = None
    before: str | None = None
    role: Role | None = None
    parent: str | None = None
    works_for: str | None = None


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
        details.c.role,
        details.c.parent,
        details.c.works_for,
        conversations.c.wakes_at,
        conversations.c.seq,
    )
    .outerjoin_from(conversations, forks)
    .outerjoin(details)
    .order_by(*_NEWEST_FIRST)
)
_LAST_KEY = 2**63 - 1
_POSITION = select(conversations.c.updated_at, conversations.c.key)


def read(connection: Connection, selection: Selection, limit: int | None) -> tuple[SummaryRow, ...]:
    """Return conversations, the one that moved last first. Raises `UnknownConversation` for `before`."""
    page = select_page(connection, selection)
    statement = _SUMMARIES.where(conversations.c.key.in_(page.order_by(*_NEWEST_FIRST).limit(limit)))
    return tuple(map(SummaryRow._make, connection.execute(statement)))


def select_page(connection: Connection, selection: Selection) -> Select[tuple[int]]:
    """Return the statement that finds the keys of these conversations. Raises `UnknownConversation` for `before`."""
    statement = select(conversations.c.key).where(*_conditions(selection))
    if selection.before is not None:
        position = tuple_(*_position(connection, selection.before))
        statement = statement.where(tuple_(conversations.c.updated_at, conversations.c.key) < position)
    return statement


def _position(connection: Connection, before: str) -> tuple[int, int]:
    """Return the place behind which a page begins, by moment and key. Raises `UnknownConversation`."""
    place = place_of(before)
    wanted = before if place is None else place.conversation_id
    found = connection.execute(_POSITION.where(conversations.c.id == wanted)).one_or_none()
    if place is not None:
        return place.updated_at, _LAST_KEY if found is None else found.key
    if found is None:
        raise UnknownConversation(before)
    return found.updated_at, found.key


def _conditions(selection: Selection) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that these conversations fulfil, apart from their place in the list."""
    key = conversations.c.key
    if selection.owner is not None:
        yield conversations.c.owner == selection.owner
    if selection.state is not None:
        yield conversations.c.state_type == selection.state
    if selection.entries:
        yield key.in_(_having(selection.entries))
    if selection.parent is not None:
        yield key.in_(_detailed(details.c.parent, selection.parent))
    if selection.works_for is not None:
        yield key.in_(_detailed(details.c.works_for, selection.works_for))
    if selection.role is not None:
        yield _has_role(selection.role)


def _has_role(role: Role) -> ColumnElement[bool]:
    """Return the condition that a conversation has this role. That of most conversations is not stored."""
    if role == "foreground":
        other = select(details.c.conversation).where(details.c.conversation == conversations.c.key)
        return ~other.where(details.c.role.is_not(None)).exists()
    return conversations.c.key.in_(_detailed(details.c.role, role))


def _detailed(column: ColumnElement[Any], value: str) -> Select[tuple[int]]:
    """Return the statement that finds the conversations with this value among their details."""
    return select(details.c.conversation).where(column == value)


def _having(entries: tuple[bytes, ...]) -> Select[tuple[int]]:
    """Return the statement that finds the conversations with all these entries in their metadata."""
    found = select(metadata_entries.c.conversation).where(metadata_entries.c.entry.in_(entries))
    return found.group_by(metadata_entries.c.conversation).having(func.count() == len(entries))
