"""The SQL by which conversations are found and read. Each function works within the transaction of its caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, literal_column, select, tuple_

from ....states.context import CHANGES_CONTEXT
from ....states.errors import UnknownConversation
from ....states.events import Opened, PolicyChanged
from ...records.rows import EventRow, HeadRow
from ..file.transaction import driver_of
from .schema import conversations, events, forks, outbox
from .statements import prepared

CHUNK = 500
"""How many ids one statement takes: SQLite allows at least 999 parameters."""

LARGEST = 2**63 - 1
"""The largest number that SQLite stores."""


class SummaryRow(NamedTuple):
    """A conversation in a list."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
    owner: str | None
    origin: str | None
    origin_seq: int | None


class UndeliveredRow(NamedTuple):
    """A row of the outbox, with the id of its conversation."""

    id: str
    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: int | None


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
_NEWEST = prepared(select(func.max(events.c.seq)).where(_OF_CONVERSATION), "head_key")
_NEWEST_POLICY = prepared(
    select(func.max(events.c.seq)).where(_OF_CONVERSATION, events.c.type == literal_column("'policy_changed'")),
    "head_key",
)
_CHANGES = ", ".join(
    f"'{kind.model_fields['type'].default}'" for kind in CHANGES_CONTEXT if kind not in (Opened, PolicyChanged)
)
_OTHER_CHANGES = prepared(
    select(events.c.seq).where(_OF_CONVERSATION, literal_column(f"events.type IN ({_CHANGES})")), "head_key"
)
_REQUEST = prepared(
    select(events.c.seq).where(_OF_CONVERSATION, events.c.event_id == bindparam("request_id")),
    *("head_key", "request_id"),
)
_SUMMARIES = (
    select(
        conversations.c.id,
        conversations.c.state_type,
        conversations.c.waits,
        conversations.c.updated_at,
        conversations.c.owner,
        forks.c.origin,
        forks.c.seq,
    )
    .outerjoin_from(conversations, forks)
    .order_by(conversations.c.updated_at.desc(), conversations.c.key.desc())
)
_LIST_POSITION = select(conversations.c.updated_at, conversations.c.key)
_WAITING = (
    select(conversations.c.id)
    .where(
        conversations.c.waits
        | conversations.c.next_timer.is_not(None)
        | conversations.c.key.in_(select(outbox.c.conversation))
    )
    .order_by(conversations.c.next_timer.nulls_last(), conversations.c.updated_at)
)
_UNDELIVERED = (
    select(conversations.c.id, *(outbox.c[name] for name in UndeliveredRow._fields[1:]))
    .join(conversations, conversations.c.key == outbox.c.conversation)
    .order_by(outbox.c.conversation, outbox.c.target, outbox.c.seq, outbox.c.effect_id)
)


def find(connection: Connection, conversation_id: str) -> tuple[int, HeadRow] | None:
    """Return the key and the head row of a conversation, or None if there is no such conversation."""
    found = driver_of(connection).execute(_FIND, (conversation_id,)).fetchone()
    return None if found is None else (found[0], HeadRow._make(found[1:]))


def found(connection: Connection, conversation_id: str) -> tuple[int, HeadRow]:
    """Return the key and the head row of a conversation. Raises `UnknownConversation`."""
    row = find(connection, conversation_id)
    if row is None:
        raise UnknownConversation(conversation_id)
    return row


def steps(connection: Connection, key: int, first: int = 1, last: int = LARGEST) -> tuple[EventRow, ...]:
    """Return the steps of a conversation from `first` to `last`, in order."""
    return tuple(map(EventRow._make, driver_of(connection).execute(_STEPS, (key, first, last))))


def newest(connection: Connection, key: int) -> int:
    """Return the number of the newest step of a conversation, at least 1."""
    (seq,) = driver_of(connection).execute(_NEWEST, (key,)).fetchone()
    return seq if type(seq) is int and seq > 0 else 1


def context_changes(connection: Connection, key: int) -> tuple[int, ...]:
    """Return the numbers of the steps that the context follows from, apart from the first: the newest change of the
    policy, and all changes of tools and details."""
    driver = driver_of(connection)
    (policy,) = driver.execute(_NEWEST_POLICY, (key,)).fetchone()
    others = [seq for (seq,) in driver.execute(_OTHER_CHANGES, (key,))]
    return tuple(sorted(others if policy is None else [policy, *others]))


def request(connection: Connection, key: int, event_id: str) -> int | None:
    """Return the number of the step that took this request, or None."""
    row = driver_of(connection).execute(_REQUEST, (key, event_id)).fetchone()
    return None if row is None else int(row[0])


def summaries(
    connection: Connection, owner: str | None, state: str | None, limit: int | None, before: str | None
) -> tuple[SummaryRow, ...]:
    """Return conversations, the one that moved last first. Raises `UnknownConversation` for `before`."""
    statement = _SUMMARIES
    if owner is not None:
        statement = statement.where(conversations.c.owner == owner)
    if state is not None:
        statement = statement.where(conversations.c.state_type == state)
    if before is not None:
        position = connection.execute(_LIST_POSITION.where(conversations.c.id == before)).one_or_none()
        if position is None:
            raise UnknownConversation(before)
        statement = statement.where(tuple_(conversations.c.updated_at, conversations.c.key) < tuple_(*position))
    return tuple(SummaryRow(*row) for row in connection.execute(statement.limit(limit)))


def waiting(connection: Connection) -> tuple[str, ...]:
    """Return the ids of all conversations that wait for work, for a timer or for a delivery. The one whose timer is
    due first comes first."""
    return tuple(connection.execute(_WAITING).scalars())


def undelivered(connection: Connection, conversation_ids: Sequence[str]) -> tuple[UndeliveredRow, ...]:
    """Return the rows of the outbox that belong to these conversations; those of one conversation and target in the
    order in which they were appended."""
    chunks = (conversation_ids[start : start + CHUNK] for start in range(0, len(conversation_ids), CHUNK))
    rows = (connection.execute(_UNDELIVERED.where(conversations.c.id.in_(chunk))) for chunk in chunks)
    return tuple(UndeliveredRow(*row) for each in rows for row in each)
