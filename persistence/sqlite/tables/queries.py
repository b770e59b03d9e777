"""The SQL by which conversations are found and read. Each function works within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Integer, Text, bindparam, func, literal_column, select

from ....states.errors import UnknownConversation
from ...records.rows import EventRow, HeadRow
from ..file.transaction import driver_of
from .schema import conversations, events, outbox
from .statements import prepared

CHUNK = 500
"""How many ids one statement takes: SQLite allows at least 999 parameters."""

LARGEST = 2**63 - 1
"""The largest number that SQLite stores."""


class UndeliveredRow(NamedTuple):
    """A row of the outbox, with the id of its conversation."""

    id: str
    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: int | None
    begun: int


_FIND = prepared(
    select(conversations.c.key, *(conversations.c[name] for name in HeadRow._fields)).where(
        conversations.c.id == bindparam("conversation_id")
    ),
    "conversation_id",
)
_EVENT = tuple(events.c[name] for name in EventRow._fields)
_OF_CONVERSATION = events.c.conversation == bindparam("head_key")
_STEPS = prepared(
    select(*_EVENT)
    .where(_OF_CONVERSATION, events.c.seq >= bindparam("first"), events.c.seq <= bindparam("last"))
    .order_by(events.c.seq),
    *("head_key", "first", "last"),
)


def _of_type(kind: str) -> ColumnElement[bool]:
    """Return the condition that an event is of this type. The type stands in the statement, because SQLite would not
    use the index `events_context_changed` for a parameter."""
    return events.c.type == literal_column(f"'{kind}'")


def _brings(field: str) -> ColumnElement[bool]:
    """Return the condition that a payload has this field. One that is not JSON counts as well: the step is read then,
    and the damage is found."""
    found = f"CASE WHEN json_valid(payload) THEN json_type(payload, '$.{field}') ELSE 'damaged' END"
    return literal_column(found, Text).is_not(None)


_NEWEST = prepared(select(func.max(events.c.seq)).where(_OF_CONVERSATION), "head_key")
_NEWEST_CHANGES = tuple(
    prepared(select(func.max(events.c.seq)).where(_OF_CONVERSATION, *conditions), "head_key")
    for conditions in (
        (_of_type("policy_changed"),),
        (_of_type("schedule_changed"),),
        (_of_type("details_changed"), _brings("title")),
        (_of_type("details_changed"), _brings("metadata")),
    )
)
_NEWEST_TOOLS = prepared(
    select(func.max(events.c.seq)).where(
        _OF_CONVERSATION,
        _of_type("tools_changed"),
        literal_column("CASE WHEN json_valid(payload) THEN json_extract(payload, '$.from_turn') ELSE 0 END", Integer)
        < bindparam("turn"),
    ),
    *("head_key", "turn"),
)
_LINK = prepared(select(events.c.chain).where(_OF_CONVERSATION, events.c.seq == bindparam("at")), "head_key", "at")
_REQUEST = prepared(
    select(events.c.seq).where(_OF_CONVERSATION, events.c.event_id == bindparam("request_id")),
    *("head_key", "request_id"),
)
_WAITING = prepared(
    select(conversations.c.id)
    .where(
        conversations.c.waits
        | conversations.c.next_timer.is_not(None)
        | conversations.c.key.in_(select(outbox.c.conversation))
    )
    .order_by(conversations.c.next_timer.nulls_last(), conversations.c.updated_at)
)
_SCHEDULED = prepared(
    select(conversations.c.id, conversations.c.wakes_at)
    .where(conversations.c.wakes_at.is_not(None))
    .order_by(conversations.c.wakes_at, conversations.c.key)
)
_UNDELIVERED = (
    select(conversations.c.id, *(outbox.c[name] for name in UndeliveredRow._fields[1:]))
    .join(conversations, conversations.c.key == outbox.c.conversation)
    .order_by(outbox.c.conversation, outbox.c.target, outbox.c.seq, outbox.c.effect_id)
)


def found(connection: Connection, conversation_id: str) -> tuple[int, HeadRow]:
    """Return the key and the head row of a conversation. Raises `UnknownConversation`."""
    row = driver_of(connection).execute(_FIND, (conversation_id,)).fetchone()
    if row is None:
        raise UnknownConversation(conversation_id)
    return row[0], HeadRow._make(row[1:])


def steps(connection: Connection, key: int, first: int = 1, last: int = LARGEST) -> tuple[EventRow, ...]:
    """Return the steps of a conversation from `first` to `last`, in order."""
    return tuple(map(EventRow._make, driver_of(connection).execute(_STEPS, (key, first, last))))


def each_step(connection: Connection, key: int, first: int) -> Iterator[EventRow]:
    """Yield the steps of a conversation from `first` on, in order, each read when it is asked for."""
    yield from map(EventRow._make, driver_of(connection).execute(_STEPS, (key, first, LARGEST)))


def link(connection: Connection, key: int, seq: int) -> bytes | None:
    """Return the link of a step, or None if there is no such step."""
    row = driver_of(connection).execute(_LINK, (key, seq)).fetchone()
    return None if row is None else bytes(row[0])


def newest(connection: Connection, key: int) -> int:
    """Return the number of the newest step of a conversation, at least 1."""
    (seq,) = driver_of(connection).execute(_NEWEST, (key,)).fetchone()
    return seq if type(seq) is int and seq > 0 else 1


def context_changes(connection: Connection, key: int) -> set[int]:
    """Return the numbers of the steps that brought the newest policy, schedule, title and metadata, as far as there
    are any. The first step and changes of the tools are left out."""
    driver = driver_of(connection)
    newest = (driver.execute(statement, (key,)).fetchone()[0] for statement in _NEWEST_CHANGES)
    return {seq for seq in newest if seq is not None}


def tools_change(connection: Connection, key: int, before: int = LARGEST) -> int | None:
    """Return the number of the newest step that changed the tools for turns from one on that lies before the turn
    `before`, or None."""
    (seq,) = driver_of(connection).execute(_NEWEST_TOOLS, (key, before)).fetchone()
    return None if seq is None else int(seq)


def request(connection: Connection, key: int, event_id: str) -> int | None:
    """Return the number of the step that took this request, or None."""
    row = driver_of(connection).execute(_REQUEST, (key, event_id)).fetchone()
    return None if row is None else int(row[0])


def waiting(connection: Connection) -> tuple[str, ...]:
    """Return the ids of all conversations that wait for work, for a timer or for a delivery. The one whose timer is
    due first comes first."""
    return tuple(conversation_id for (conversation_id,) in driver_of(connection).execute(_WAITING))


def scheduled(connection: Connection, count: int) -> tuple[tuple[str, int], ...]:
    """Return the ids of up to `count` conversations with a scheduled wake-up, and when that is; the earliest first."""
    return tuple(driver_of(connection).execute(f"{_SCHEDULED} LIMIT ?", (count,)))


def undelivered(connection: Connection, conversation_ids: Sequence[str]) -> tuple[UndeliveredRow, ...]:
    """Return the rows of the outbox that belong to these conversations; those of one conversation and target in the
    order in which they were appended."""
    chunks = (conversation_ids[start : start + CHUNK] for start in range(0, len(conversation_ids), CHUNK))
    rows = (connection.execute(_UNDELIVERED.where(conversations.c.id.in_(chunk))) for chunk in chunks)
    return tuple(UndeliveredRow(*row) for each in rows for row in each)
