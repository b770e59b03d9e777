"""The SQL: how rows get into their tables, and out of them.

The statements are made once, when this module is imported. Each function works within the transaction of its caller.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from .rows import EventRow, RestRow
from .schema import conversations, events, forks


class Head(NamedTuple):
    """The newest step of a conversation, by its place and its link; `key` is the conversation's own row."""

    key: int
    seq: int
    chain: bytes


class SummaryRow(NamedTuple):
    """A conversation in a list."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
    origin: str | None
    origin_seq: int | None


_HEAD = (conversations.c.key, conversations.c.seq, conversations.c.chain)
_STEP = tuple(events.c[name] for name in EventRow._fields)
_REST = tuple(conversations.c[name] for name in RestRow._fields)

_ADD_CONVERSATION = insert(conversations)
_ADD_STEP = insert(events)
_ADVANCE = (
    update(conversations)
    .where(
        conversations.c.key == bindparam("head_key"),
        conversations.c.seq == bindparam("head_seq"),
        conversations.c.chain == bindparam("head_chain"),
    )
    .values({name: bindparam(name) for name in RestRow._fields})
)
_DELETE = delete(conversations).where(conversations.c.id == bindparam("conversation_id"))
_FIND = select(conversations.c.key, *_REST).where(conversations.c.id == bindparam("conversation_id"))
_STEPS = (
    select(*_STEP)
    .where(events.c.conversation == bindparam("head_key"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
)
_LIST = (
    select(
        conversations.c.id,
        conversations.c.state_type,
        conversations.c.waits,
        conversations.c.updated_at,
        forks.c.origin,
        forks.c.seq,
    )
    .outerjoin_from(conversations, forks)
    .order_by(conversations.c.updated_at.desc(), conversations.c.key.desc())
)
_WITH_TIMERS = (
    select(conversations.c.id).where(conversations.c.next_timer.is_not(None)).order_by(conversations.c.next_timer)
)


def add_conversation(connection: Connection, conversation_id: str, row: EventRow, rest: RestRow) -> Head:
    """Store a conversation and its first step. Raises sqlalchemy's IntegrityError if there is one with this id."""
    made = connection.execute(_ADD_CONVERSATION, {"id": conversation_id, "created_at": row.at, **rest._asdict()})
    assert made.inserted_primary_key is not None
    head = Head(made.inserted_primary_key.key, row.seq, row.chain)
    _add_step(connection, head, row)
    return head


def advance(connection: Connection, head: Head, row: EventRow, rest: RestRow) -> Head | None:
    """Store the next step, and return the new head; None, with nothing stored, if `head` is no longer the newest.

    The link is compared too, so that a conversation deleted and another one in its place are not taken for each
    other. Raises sqlalchemy's IntegrityError if the event's id, or its effect's, is already in the log.
    """
    moved = connection.execute(
        _ADVANCE, {"head_key": head.key, "head_seq": head.seq, "head_chain": head.chain, **rest._asdict()}
    )
    if moved.rowcount != 1:
        return None
    _add_step(connection, head, row)
    return Head(head.key, row.seq, row.chain)


def _add_step(connection: Connection, head: Head, row: EventRow) -> None:
    connection.execute(_ADD_STEP, {"conversation": head.key, **row._asdict()})


def find(connection: Connection, conversation_id: str) -> tuple[int, RestRow] | None:
    """The key of a conversation and where it rests; None if there is no such conversation."""
    found = connection.execute(_FIND, {"conversation_id": conversation_id}).one_or_none()
    return None if found is None else (found[0], RestRow(*found[1:]))


def steps(connection: Connection, key: int, after: int) -> tuple[EventRow, ...]:
    """The steps of a conversation behind the step `after`, in order."""
    rows = connection.execute(_STEPS, {"head_key": key, "after": after})
    return tuple(EventRow(*row) for row in rows)


def summaries(connection: Connection) -> tuple[SummaryRow, ...]:
    """All conversations, the one that moved last first."""
    return tuple(SummaryRow(*row) for row in connection.execute(_LIST))


def with_timers(connection: Connection) -> tuple[str, ...]:
    """The ids of all conversations in which a timer runs, the one due soonest first."""
    return tuple(connection.execute(_WITH_TIMERS).scalars())


def remove(connection: Connection, conversation_id: str) -> bool:
    """Delete a conversation with all its steps. Whether there was one."""
    return connection.execute(_DELETE, {"conversation_id": conversation_id}).rowcount == 1
