"""The SQL by which conversations go on and are found: how rows get into their tables, and out of them.

The statements are made once, when this module is imported. Each function works within the transaction of its caller.

What a step needs, and what is read when a conversation is opened, goes to the driver directly: SQLAlchemy writes the
SQL, but to run two statements through it takes longer than SQLite needs to commit them, and one `executemany` of the
driver does the work of a whole batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, insert, literal_column, select, update
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from ...states.errors import UnknownConversation
from ..records.outbox import Outgoing
from ..records.rows import EventRow, Head, RestRow, StoredRows
from .schema import conversations, events, forks, outbox
from .transaction import driver_of


class SummaryRow(NamedTuple):
    """A conversation in a list."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
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


class Advance(NamedTuple):
    """A step on its way into the tables: it takes its conversation from `head` to `following`."""

    head: Head
    row: EventRow
    rest: RestRow
    outgoing: tuple[Outgoing, ...] = ()

    @property
    def following(self) -> Head:
        """The head that the conversation has behind this step."""
        return Head(self.head.key, self.row.seq, self.row.chain)


class OutboxKey(NamedTuple):
    """A row of the outbox, by what names it.

    `origin` is the link of the conversation's first step. SQLite gives the key of a conversation that was deleted to
    another one, whose rows must not be taken for those of the first.
    """

    conversation: int
    target: str
    effect_id: int
    origin: bytes


class Postponement(NamedTuple):
    """That an attempt has failed: how many have by now, and when the next one is due."""

    attempts: int
    next_attempt: int


def _prepared(statement: Any, *parameters: str) -> str:
    """The statement as text for the driver, which takes these parameters in this order."""
    compiled = statement.compile(dialect=SQLiteDialect(paramstyle="qmark"))
    assert tuple(compiled.positiontup) == parameters, compiled.positiontup
    return str(compiled)


_HEAD = ("head_key", "head_seq", "head_chain")
_AT_HEAD = (
    conversations.c.key == bindparam("head_key"),
    conversations.c.seq == bindparam("head_seq"),
    conversations.c.chain == bindparam("head_chain"),
)
_ADVANCE = _prepared(
    update(conversations).where(*_AT_HEAD).values({name: bindparam(name) for name in RestRow._fields}),
    *RestRow._fields,
    *_HEAD,
)
_ADD_STEP = _prepared(insert(events), "conversation", *EventRow._fields)
_TURN_SEQ = _prepared(update(conversations).where(*_AT_HEAD).values(seq=-conversations.c.seq), *_HEAD)

_ADDRESS = ("conversation", "target", "effect_id", "seq")
_SEND = _prepared(
    insert(outbox).values({name: bindparam(name) for name in _ADDRESS} | {"attempts": literal_column("0")}), *_ADDRESS
)
_KEY = ("its_conversation", "its_target", "its_effect", "its_origin")
_AT_KEY = (
    outbox.c.conversation == bindparam("its_conversation"),
    outbox.c.target == bindparam("its_target"),
    outbox.c.effect_id == bindparam("its_effect"),
    exists().where(
        events.c.conversation == outbox.c.conversation,
        events.c.seq == literal_column("1"),
        events.c.chain == bindparam("its_origin"),
    ),
)
_ACKNOWLEDGE = _prepared(delete(outbox).where(*_AT_KEY), *_KEY)
_POSTPONE = _prepared(
    update(outbox).where(*_AT_KEY).values({name: bindparam(name) for name in Postponement._fields}),
    *Postponement._fields,
    *_KEY,
)
_UNDELIVERED = (
    select(conversations.c.id, *(outbox.c[name] for name in UndeliveredRow._fields[1:]))
    .join(conversations, conversations.c.key == outbox.c.conversation)
    .order_by(outbox.c.conversation, outbox.c.target, outbox.c.seq, outbox.c.effect_id)
)

_DELETE = delete(conversations).where(conversations.c.id == bindparam("conversation_id"))
_FIND = _prepared(
    select(conversations.c.key, *(conversations.c[name] for name in RestRow._fields)).where(
        conversations.c.id == bindparam("conversation_id")
    ),
    "conversation_id",
)
_STEPS = _prepared(
    select(*(events.c[name] for name in EventRow._fields))
    .where(events.c.conversation == bindparam("head_key"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq),
    *("head_key", "after"),
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
_WAITING = (
    select(conversations.c.id)
    .where(
        conversations.c.waits
        | conversations.c.next_timer.is_not(None)
        | conversations.c.key.in_(select(outbox.c.conversation))
    )
    .order_by(conversations.c.next_timer.nulls_last(), conversations.c.updated_at)
)


# --- conversations


def find(connection: Connection, conversation_id: str) -> tuple[int, RestRow] | None:
    """The key of a conversation and where it rests; None if there is no such conversation."""
    found = driver_of(connection).execute(_FIND, (conversation_id,)).fetchone()
    return None if found is None else (found[0], RestRow._make(found[1:]))


def steps(connection: Connection, key: int, after: int) -> tuple[EventRow, ...]:
    """The steps of a conversation behind the step `after`, in order."""
    return tuple(map(EventRow._make, driver_of(connection).execute(_STEPS, (key, after))))


def stored(connection: Connection, conversation_id: str, after: int = 0) -> StoredRows:
    """The conversation as it stands in the tables, damaged or not, with its steps behind the step `after`.

    Raises `UnknownConversation`.
    """
    found = find(connection, conversation_id)
    if found is None:
        raise UnknownConversation(conversation_id)
    key, rest = found
    return StoredRows(key, rest, steps(connection, key, after))


def summaries(connection: Connection) -> tuple[SummaryRow, ...]:
    """All conversations, the one that moved last first."""
    return tuple(SummaryRow(*row) for row in connection.execute(_LIST))


def waiting(connection: Connection) -> tuple[str, ...]:
    """The ids of all conversations that wait for work, in which a timer runs, or of which something is still to be
    delivered; the one whose timer is due soonest first."""
    return tuple(connection.execute(_WAITING).scalars())


def remove(connection: Connection, conversation_id: str) -> bool:
    """Delete a conversation with all its steps and its part of the outbox. Whether there was one."""
    return connection.execute(_DELETE, {"conversation_id": conversation_id}).rowcount == 1


# --- steps


def advance(driver: sqlite3.Connection, steps: Sequence[Advance]) -> bool:
    """Store steps of different conversations, with what goes out with them, by one statement a table.

    False if one of the conversations does not stand at its `head`: then undo the transaction. The link is compared
    too, so that a conversation deleted and another one in its place are not taken for each other. Raises sqlite3's
    IntegrityError if an event's id, or its effect's, is already in the log.
    """
    moved = driver.executemany(_ADVANCE, [(*step.rest, *step.head) for step in steps])
    if moved.rowcount != len(steps):
        return False
    driver.executemany(_ADD_STEP, [(step.head.key, *step.row) for step in steps])
    sent = [(step.head.key, one.target, one.effect_id, step.row.seq) for step in steps for one in step.outgoing]
    if sent:
        driver.executemany(_SEND, sent)
    return True


def write_again(driver: sqlite3.Connection, head: Head) -> bool:
    """Whether this is the newest step of its conversation; if so, its place is written once more.

    That the following COMMIT succeeds then says that everything before it is on the disk too. The value is turned and
    turned back, because SQLite writes nothing where nothing changes.
    """
    turned = head._replace(seq=-head.seq)
    return driver.execute(_TURN_SEQ, head).rowcount == 1 and driver.execute(_TURN_SEQ, turned).rowcount == 1


# --- the outbox


def undelivered(connection: Connection) -> tuple[UndeliveredRow, ...]:
    """All rows of the outbox; those of one conversation and target in the order in which they were said."""
    return tuple(UndeliveredRow(*row) for row in connection.execute(_UNDELIVERED))


def note(driver: sqlite3.Connection, receipts: Iterable[tuple[OutboxKey, Postponement | None]]) -> None:
    """Take out of the outbox what was delivered, and note of the rest that an attempt has failed."""
    delivered, failed = [], []
    for key, postponement in receipts:
        if postponement is None:
            delivered.append(key)
        else:
            failed.append((*postponement, *key))
    if delivered:
        driver.executemany(_ACKNOWLEDGE, delivered)
    if failed:
        driver.executemany(_POSTPONE, failed)
