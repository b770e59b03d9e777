"""A conversation as a whole: all its steps at once, out of the tables or into them.

A log that goes on gets its steps one by one. A new conversation has its first one from the beginning; a copy of one,
and one that comes from a file, have all of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from ...states.errors import UnknownConversation
from ..errors import StoreConflict
from ..records.codec import decode
from ..records.entry import StoredEntry
from ..records.integrity import check_whole
from ..records.origin import Origin
from ..records.rows import EventRow, Head, RestRow
from . import recorder
from .schema import conversations, events, forks


class ConversationRecord(NamedTuple):
    """A conversation with all its steps, as it stands in the tables. `created_at` is in microseconds since 1970."""

    id: str
    created_at: int
    rest: RestRow
    steps: tuple[EventRow, ...]
    owner: str | None = None
    parent: str | None = None
    origin: Origin | None = None


_ADD_CONVERSATION = insert(conversations)
_ADD_STEPS = insert(events)
_ADD_ORIGIN = insert(forks)
_FIND = (
    select(
        conversations.c.key,
        conversations.c.created_at,
        conversations.c.owner,
        conversations.c.parent,
        forks.c.origin,
        forks.c.seq,
        *(conversations.c[name] for name in RestRow._fields),
    )
    .outerjoin_from(conversations, forks)
    .where(conversations.c.id == bindparam("conversation_id"))
)

_IDS = select(conversations.c.id).order_by(conversations.c.key)


def ids(connection: Connection) -> tuple[str, ...]:
    """The ids of all conversations, the one that was stored first first."""
    return tuple(connection.execute(_IDS).scalars())


def read_whole(connection: Connection, conversation_id: str) -> ConversationRecord:
    """The conversation as it stands in the tables, damaged or not. Raises `UnknownConversation`."""
    found = connection.execute(_FIND, {"conversation_id": conversation_id}).one_or_none()
    if found is None:
        raise UnknownConversation(conversation_id)
    key, created_at, owner, parent, origin, seq, *rest = found
    return ConversationRecord(
        id=conversation_id,
        created_at=created_at,
        rest=RestRow(*rest),
        steps=recorder.steps(connection, key, after=0),
        owner=owner,
        parent=parent,
        origin=None if origin is None else Origin(origin, seq),
    )


def add_whole(connection: Connection, whole: ConversationRecord) -> Head:
    """Store a conversation, with at least one step, and return where it stands then. Raises `StoreConflict` if there is
    one with this id."""
    named = {"id": whole.id, "created_at": whole.created_at, "owner": whole.owner, "parent": whole.parent}
    try:
        made = connection.execute(_ADD_CONVERSATION, {**named, **whole.rest._asdict()})
    except IntegrityError as error:
        raise StoreConflict(f"There is already a conversation with the id {whole.id}.") from error.orig
    assert made.inserted_primary_key is not None
    key = made.inserted_primary_key.key
    connection.execute(_ADD_STEPS, [{"conversation": key, **row._asdict()} for row in whole.steps])
    if whole.origin is not None:
        copied = {"origin": whole.origin.conversation_id, "seq": whole.origin.seq}
        connection.execute(_ADD_ORIGIN, {"conversation": key, **copied})
    return Head(key, whole.rest.seq, whole.rest.chain)


def checked(whole: ConversationRecord) -> tuple[StoredEntry, ...]:
    """The steps, read. `Pure.` Raises `Damaged` unless all of them are there, unchanged, and the state with them."""
    entries = tuple(map(decode, whole.steps))
    check_whole(entries, whole.rest)
    return entries
