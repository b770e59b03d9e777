"""Reads and writes whole conversations: all rows of one, out of the tables or into them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from ....states.errors import UnknownConversation
from ...errors import StoreConflict
from ...records.conversation_record import ConversationRecord
from ...records.details import Details, details_of_rows, details_row
from ...records.digests import DELIVERIES, origin_checksum
from ...records.origin import Origin
from ...records.rows import EventRow, HeadRow, OutboxRow
from ..file.transaction import driver_of
from . import details_recorder, queries, recorder
from .recorder import Head
from .schema import acknowledgements, conversations, events, forks, outbox
from .statements import prepared

_ADD_CONVERSATION = insert(conversations)
_NEW_KEY = """
SELECT 1 + max(
    coalesce((SELECT max(key) FROM conversations), 0), coalesce((SELECT max(conversation) FROM events), 0)
)
"""
"""The key of a new conversation: one that no steps have, also of a conversation that is being deleted."""
_ADD_STEPS = insert(events)
_ADD_ORIGIN = insert(forks)
_ADD_DELIVERIES = insert(outbox)
_CONVERSATION = (
    select(
        conversations.c.key,
        conversations.c.created_at,
        conversations.c.owner,
        conversations.c.parent,
        forks.c.origin,
        forks.c.seq,
        forks.c.checksum,
        conversations.c.sent,
        acknowledgements.c.checksum,
        *(conversations.c[name] for name in HeadRow._fields),
    )
    .outerjoin_from(conversations, forks)
    .outerjoin(acknowledgements, acknowledgements.c.conversation == conversations.c.key)
)
_FIND = prepared(_CONVERSATION.where(conversations.c.id == bindparam("conversation_id")), "conversation_id")
_FIND_BY_KEY = prepared(_CONVERSATION.where(conversations.c.key == bindparam("its_key")), "its_key")
_DELIVERIES = prepared(
    select(*(outbox.c[name] for name in OutboxRow._fields))
    .where(outbox.c.conversation == bindparam("head_key"))
    .order_by(outbox.c.target, outbox.c.seq, outbox.c.effect_id),
    "head_key",
)
_IDS = select(conversations.c.id).order_by(conversations.c.key)
_LAST_CHARACTER = "\U0010ffff"
"""Sorts behind every other character, and is no character of an id."""


def ids(connection: Connection, prefix: str) -> tuple[str, ...]:
    """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
    statement = _IDS
    if prefix:
        statement = statement.where(conversations.c.id.between(prefix, prefix + _LAST_CHARACTER))
    return tuple(connection.execute(statement).scalars())


def read_record(connection: Connection, conversation_id: str, key: int | None = None) -> ConversationRecord:
    """Return all rows of a conversation, damaged or not. It is found by its id, or by its `key` if that is given.
    Raises `UnknownConversation`."""
    driver = driver_of(connection)
    found = driver.execute(*((_FIND, (conversation_id,)) if key is None else (_FIND_BY_KEY, (key,)))).fetchone()
    if found is None:
        raise UnknownConversation(conversation_id)
    key, created_at, owner, parent, origin, seq, origin_check, sent, acknowledged, *head = found
    return ConversationRecord(
        id=conversation_id,
        created_at=created_at,
        head=HeadRow(*head),
        steps=queries.steps(connection, key),
        owner=owner,
        parent=parent,
        origin=None if origin is None else Origin(origin, seq),
        outbox=tuple(map(OutboxRow._make, driver.execute(_DELIVERIES, (key,)))),
        details=details_recorder.read(driver, key),
        outbox_checksum=_difference(sent, acknowledged or 0),
        origin_checksum=origin_check,
    )


def add_copy(connection: Connection, source_id: str, record: ConversationRecord) -> Head:
    """Store a conversation that was made from another one, which must still be there, and return its head."""
    queries.found(connection, source_id)
    return add_record(connection, record)


def add_opened(connection: Connection, record: ConversationRecord, known: Details, parent: str | None) -> Head:
    """Store a conversation that begins, and whose parent, if it has one, must still be there. Returns its head."""
    if parent is not None:
        queries.found(connection, parent)
    return add_record(connection, record, known)


def add_record(connection: Connection, record: ConversationRecord, known: Details | None = None) -> Head:
    """Store a conversation with at least one step, and return its head. What lists show of it is computed from the
    steps, unless it is `known`. Raises `StoreConflict` if the id is taken."""
    named = {"id": record.id, "created_at": record.created_at, "owner": record.owner, "parent": record.parent}
    (key,) = driver_of(connection).execute(_NEW_KEY).fetchone()
    try:
        connection.execute(_ADD_CONVERSATION, {"key": key, **named, **record.head._asdict()})
    except IntegrityError as error:
        raise StoreConflict(f"There is already a conversation with the id {record.id}.") from error.orig
    connection.execute(_ADD_STEPS, [{"conversation": key, **row._asdict()} for row in record.steps])
    derived = details_of_rows(record.steps) if known is None else known
    details_recorder.add(driver_of(connection), key, details_row(derived))
    if record.outbox:
        connection.execute(_ADD_DELIVERIES, [{"conversation": key, **row._asdict()} for row in record.outbox])
        recorder.count_deliveries(driver_of(connection), key)
    if record.origin is not None:
        connection.execute(_ADD_ORIGIN, {"conversation": key, **_origin_row(record.origin, record.steps)})
    return Head(key, record.head.seq, record.head.chain)


def _origin_row(origin: Origin, steps: Sequence[EventRow]) -> dict[str, object]:
    """Return the columns that say where a copy with these steps comes from."""
    chain = steps[origin.seq - 1].chain if 0 < origin.seq <= len(steps) else None
    checksum = origin_checksum(origin.conversation_id, origin.seq, chain)
    return {"origin": origin.conversation_id, "seq": origin.seq, "checksum": checksum}


def _difference(sent: object, acknowledged: object) -> int | None:
    """Return the checksum of what must be in an outbox; None if the database is too old to say."""
    if sent is None:
        return None
    if isinstance(sent, int) and isinstance(acknowledged, int):
        return (sent - acknowledged) % DELIVERIES
    return -1  # damage has made it unreadable; no outbox has a negative sum
