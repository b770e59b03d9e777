"""The SQL by which conversations are found and read: their steps, and whole records of them.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Integer, and_, bindparam, func, insert, literal_column, select
from sqlalchemy.dialects.sqlite import insert as upsert

from ...states.errors import UnknownConversation
from ..codec import DELIVERIES, files_in, origin_checksum
from ..errors import StoreConflict
from ..records import ConversationRecord, EventRow, HeadRow, Origin, OutboxRow
from ..summaries import Details, details_of_rows, details_row
from . import files, writing
from .schema import CONTEXT_CHANGES, acknowledgements, conversations, details, events, forks, outbox
from .statements import Driver, Statement, limited, prepared

CHUNK = 500
"""How many ids one statement takes: SQLite allows at least 999 parameters."""

LARGEST = 2**63 - 1
"""The largest number that a database stores."""


class UndeliveredRow(NamedTuple):
    """A row of the outbox, with the id of its conversation."""

    id: str
    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: int | None
    begun: int


_FIND_HEAD = prepared(
    select(conversations.c.key, *(conversations.c[name] for name in HeadRow._fields)).where(
        conversations.c.id == bindparam("conversation_id")
    ),
    "conversation_id",
)
_EVENT = tuple(events.c[name] for name in EventRow._fields)
_OF_CONVERSATION = events.c.conversation == bindparam("head_key")
_LINK_AT = (
    select(events.c.chain)
    .where(events.c.conversation == conversations.c.key, events.c.seq == bindparam("link_of"))
    .correlate(conversations)
    .scalar_subquery()
)
_HEAD_WITHOUT_STATE = tuple(
    literal_column("''").label(name) if name == "state" else conversations.c[name] for name in HeadRow._fields
)
_IN_ORDER = " ORDER BY events.seq"
"""PostgreSQL does not see that the steps of one conversation come in order from the index, and would sort long logs on
the disk."""

_LOG_PART = prepared(
    select(conversations.c.key, _LINK_AT, *_HEAD_WITHOUT_STATE, *_EVENT)
    .outerjoin_from(
        conversations,
        events,
        and_(
            events.c.conversation == conversations.c.key,
            events.c.seq >= bindparam("first"),
            events.c.seq <= bindparam("last"),
        ),
    )
    .where(conversations.c.id == bindparam("conversation_id"))
    .order_by(events.c.seq),
    *("link_of", "first", "last", "conversation_id"),
    in_postgresql={_IN_ORDER: ""},
)
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


def _brings(field: str) -> str:
    """Return the condition that a payload has this field. One that is not JSON counts as well: the step is read then,
    and the damage is found."""
    return f"CASE WHEN json_valid(payload) THEN json_type(payload, '$.{field}') ELSE 'damaged' END IS NOT NULL"


_FROM_TURN = "CASE WHEN json_valid(payload) THEN json_extract(payload, '$.from_turn') ELSE 0 END"
_IN_POSTGRESQL = {
    _brings("title"): r"""payload !~ '^[{]("metadata":|"system":|[}]$)'""",
    _brings("metadata"): r"""payload !~ '^[{]("title":"([^"\\]|\\.)*")?,?("system":"([^"\\]|\\.)*")?[}]$'""",
    _brings("system"): r"""payload !~ '([}][}]|^[{]("title":"([^"\\]|\\.)*")?[}])$'""",
    _FROM_TURN: r"""coalesce(substring(payload from '"from_turn":([0-9]{1,18})(?:,"narrows":true)?[}]$')::bigint, 0)""",
}
"""PostgreSQL's own JSON refuses the character NUL and halves of surrogate pairs, which payloads may hold. So regular
expressions recognise payloads as `codec` writes them: with the fields in their order, without those that are None."""


def _newest_of(kind: str, *conditions: str) -> ColumnElement[int | None]:
    """Return the number of the newest step with an event of this type for which these conditions hold."""
    held: list[ColumnElement[bool]] = [literal_column(condition) for condition in conditions]
    return _newest(_of_type(kind), *held)


def _newest(*conditions: ColumnElement[bool]) -> ColumnElement[int | None]:
    return (
        select(func.max(events.c.seq)).where(events.c.conversation == conversations.c.key, *conditions)
    ).scalar_subquery()


_CHANGES = (
    *(_newest_of(kind) for kind in CONTEXT_CHANGES if kind not in ("details_changed", "tools_changed")),
    _newest_of("details_changed", _brings("title")),
    _newest_of("details_changed", _brings("metadata")),
    _newest_of("details_changed", _brings("system")),
    _newest_of("tools_changed"),
)
"""The newest step of each kind that changes the context. One with new details may leave the title, the metadata or the
system prompt as it was."""

_FIND_END = prepared(
    select(
        conversations.c.key,
        select(details.c.first_message.is_not(None))
        .where(details.c.conversation == conversations.c.key)
        .scalar_subquery(),
        _newest(),
        *(conversations.c[name] for name in HeadRow._fields),
        *_CHANGES,
    ).where(conversations.c.id == bindparam("conversation_id")),
    "conversation_id",
    in_postgresql={_brings(field): _IN_POSTGRESQL[_brings(field)] for field in ("title", "metadata", "system")},
)
_NEWEST_TOOLS = prepared(
    select(func.max(events.c.seq)).where(
        _OF_CONVERSATION, _of_type("tools_changed"), literal_column(_FROM_TURN, Integer) < bindparam("turn")
    ),
    *("head_key", "turn"),
    in_postgresql={_FROM_TURN: _IN_POSTGRESQL[_FROM_TURN]},
)


@lru_cache(maxsize=32)
def _some_steps(count: int) -> Statement:
    """Return the statement that reads so many steps."""
    wanted = events.c.seq.in_([bindparam(f"seq_{number}") for number in range(count)])
    return Statement.of(select(*_EVENT).where(_OF_CONVERSATION, wanted))


@lru_cache(maxsize=32)
def _some_links(count: int) -> Statement:
    """Return the statement that reads the links of so many steps."""
    wanted = events.c.seq.in_([bindparam(f"seq_{number}") for number in range(count)])
    return Statement.of(select(events.c.seq, events.c.chain).where(_OF_CONVERSATION, wanted))


_LINK = prepared(select(events.c.chain).where(_OF_CONVERSATION, events.c.seq == bindparam("at")), "head_key", "at")
_REQUEST = prepared(
    select(events.c.seq).where(_OF_CONVERSATION, events.c.event_id == bindparam("request_id")),
    *("head_key", "request_id"),
)
_WAITING = prepared(
    select(conversations.c.id)
    .where(
        (conversations.c.waits != literal_column("0"))
        | conversations.c.next_timer.is_not(None)
        | conversations.c.key.in_(select(outbox.c.conversation))
    )
    .order_by(conversations.c.next_timer.nulls_last(), conversations.c.updated_at)
)
_SCHEDULED = prepared(
    limited(
        select(conversations.c.id, conversations.c.wakes_at)
        .where(conversations.c.wakes_at.is_not(None))
        .order_by(conversations.c.wakes_at, conversations.c.key)
    ),
    "limit",
)
_UNDELIVERED = (
    select(conversations.c.id, *(outbox.c[name] for name in UndeliveredRow._fields[1:]))
    .join(conversations, conversations.c.key == outbox.c.conversation)
    .order_by(outbox.c.conversation, outbox.c.target, outbox.c.seq, outbox.c.effect_id)
)


@lru_cache(maxsize=16)
def _undelivered_of(count: int) -> Statement:
    """Return the statement that reads the outbox of so many conversations."""
    return Statement.of(
        _UNDELIVERED.where(conversations.c.id.in_([bindparam(f"id_{number}") for number in range(count)]))
    )


def found(driver: Driver, conversation_id: str) -> tuple[int, HeadRow]:
    """Return the key and the head row of a conversation. Raises `UnknownConversation`."""
    row = driver.execute(_FIND_HEAD, (conversation_id,)).fetchone()
    if row is None:
        raise UnknownConversation(conversation_id)
    return row[0], HeadRow._make(row[1:])


class LogPart(NamedTuple):
    """Some steps of a conversation: its key, its head row without the state, the link of one of its steps, None if
    there is no such step, and the rows."""

    key: int
    head: HeadRow
    link: bytes | None
    rows: tuple[EventRow, ...]


def log_part(driver: Driver, conversation_id: str, first: int, last: int, *, link_of: int) -> LogPart:
    """Read the steps from `first` to `last` in one statement, in order, and the link of the step `link_of`. Raises
    `UnknownConversation`."""
    found = driver.execute(_LOG_PART, (link_of, first, last, conversation_id)).fetchall()
    if not found:
        raise UnknownConversation(conversation_id)
    key, link = found[0][:2]
    end = 2 + len(HeadRow._fields)
    rows = [EventRow._make(row[end:]) for row in found if row[end] is not None]
    rows.sort(key=_order)
    return LogPart(key, HeadRow._make(found[0][2:end]), None if link is None else bytes(link), tuple(rows))


def _order(row: EventRow) -> int:
    """Return by what steps are sorted; damage may have made a number anything."""
    return row.seq if type(row.seq) is int else LARGEST


def steps(driver: Driver, key: int, first: int = 1, last: int = LARGEST) -> tuple[EventRow, ...]:
    """Return the steps of a conversation from `first` to `last`, in order."""
    return tuple(map(EventRow._make, driver.execute(_STEPS, (key, first, last))))


def each_step(driver: Driver, key: int, first: int, last: int = LARGEST) -> Iterator[EventRow]:
    """Yield the steps of a conversation from `first` to `last`, in order. SQLite reads each when it is asked for."""
    yield from map(EventRow._make, driver.execute(_STEPS, (key, first, last)))


def link(driver: Driver, key: int, seq: int) -> bytes | None:
    """Return the link of a step, or None if there is no such step."""
    row = driver.execute(_LINK, (key, seq)).fetchone()
    return None if row is None else bytes(row[0])


class FoundEnd(NamedTuple):
    """Where a conversation stands: its key, whether a message of a user has given it its title, the number of its
    newest step, its row, and the numbers of the steps from which its context follows, apart from the first."""

    key: int
    is_titled: bool
    newest: int
    head: HeadRow
    changes: tuple[int, ...]


def find_end(driver: Driver, conversation_id: str) -> FoundEnd:
    """Return where a conversation stands. Of the tools, the newest change is found. Raises `UnknownConversation`."""
    row = driver.execute(_FIND_END, (conversation_id,)).fetchone()
    if row is None:
        raise UnknownConversation(conversation_id)
    key, is_titled, newest, *rest = row
    head, changes = HeadRow._make(rest[: len(HeadRow._fields)]), rest[len(HeadRow._fields) :]
    newest = newest if type(newest) is int and newest > 0 else 1
    return FoundEnd(key, bool(is_titled), newest, head, tuple(seq for seq in changes if seq is not None))


def some_steps(driver: Driver, key: int, wanted: Collection[int]) -> dict[int, EventRow]:
    """Return these steps of a conversation, as far as they are there."""
    rows = driver.execute(_some_steps(len(wanted)), (key, *wanted))
    return {row[0]: EventRow._make(row) for row in rows}


def some_links(driver: Driver, key: int, wanted: Collection[int]) -> dict[int, bytes]:
    """Return the links of these steps, as far as they are there."""
    return {seq: bytes(chain) for seq, chain in driver.execute(_some_links(len(wanted)), (key, *wanted))}


def tools_change(driver: Driver, key: int, before: int) -> int | None:
    """Return the number of the newest step that changed the tools for turns from one on that lies before the turn
    `before`, or None."""
    (seq,) = driver.execute(_NEWEST_TOOLS, (key, before)).fetchone()
    return None if seq is None else int(seq)


def request(driver: Driver, key: int, event_id: str) -> int | None:
    """Return the number of the step that took this request, or None."""
    row = driver.execute(_REQUEST, (key, event_id)).fetchone()
    return None if row is None else int(row[0])


def waiting(driver: Driver) -> tuple[str, ...]:
    """Return the ids of all conversations that wait for work, for a timer or for a delivery. The one whose timer is
    due first comes first."""
    return tuple(conversation_id for (conversation_id,) in driver.execute(_WAITING))


def scheduled(driver: Driver, count: int) -> tuple[tuple[str, int], ...]:
    """Return the ids of up to `count` conversations with a scheduled wake-up, and when that is; the earliest first."""
    return tuple(driver.execute(_SCHEDULED, (count,)))


def undelivered(driver: Driver, conversation_ids: Sequence[str]) -> tuple[UndeliveredRow, ...]:
    """Return the rows of the outbox that belong to these conversations; those of one conversation and target in the
    order in which they were appended."""
    chunks = (conversation_ids[start : start + CHUNK] for start in range(0, len(conversation_ids), CHUNK))
    rows = (driver.execute(_undelivered_of(len(chunk)), chunk) for chunk in chunks)
    return tuple(UndeliveredRow._make(row) for each in rows for row in each)


_UNUSED_KEY = (
    "1 + max(coalesce((SELECT max(key) FROM conversations), 0), coalesce((SELECT max(conversation) FROM events), 0))"
)
_NEW_KEY = prepared(
    select(literal_column(_UNUSED_KEY)),
    in_postgresql={_UNUSED_KEY: "nextval(pg_get_serial_sequence('conversations', 'key'))"},
)
"""The key of a new conversation: one that no steps have, also of a conversation that is being deleted."""

_NAMED = tuple(column.name for column in conversations.columns if column is not conversations.c.sent)
_ADD_CONVERSATION = prepared(
    upsert(conversations)
    .values({name: bindparam(name) for name in _NAMED})
    .on_conflict_do_nothing(index_elements=[conversations.c.id]),
    *_NAMED,
)
_ADD_STEPS = prepared(insert(events), "conversation", *EventRow._fields)
_ORIGIN = ("conversation", "origin", "seq", "checksum")
_ADD_ORIGIN = prepared(insert(forks), *_ORIGIN)
_ADD_DELIVERIES = prepared(
    insert(outbox).values({name: bindparam(name) for name in ("conversation", *OutboxRow._fields)}),
    *("conversation", *OutboxRow._fields),
)
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
_FIND_RECORD = prepared(_CONVERSATION.where(conversations.c.id == bindparam("conversation_id")), "conversation_id")
_FIND_RECORD_BY_KEY = prepared(_CONVERSATION.where(conversations.c.key == bindparam("its_key")), "its_key")
_DELIVERIES = prepared(
    select(*(outbox.c[name] for name in OutboxRow._fields))
    .where(outbox.c.conversation == bindparam("head_key"))
    .order_by(outbox.c.target, outbox.c.seq, outbox.c.effect_id),
    "head_key",
)
_IDS = select(conversations.c.id).order_by(conversations.c.key)
_ALL_IDS = prepared(_IDS)
_IDS_BETWEEN = prepared(_IDS.where(conversations.c.id.between(bindparam("first"), bindparam("last"))), "first", "last")
_LAST_CHARACTER = "\U0010ffff"
"""Sorts behind every other character, and is no character of an id."""


def ids(driver: Driver, prefix: str) -> tuple[str, ...]:
    """Return the ids of all conversations that begin with `prefix`, in the order in which they were created."""
    found = driver.execute(_IDS_BETWEEN, (prefix, prefix + _LAST_CHARACTER)) if prefix else driver.execute(_ALL_IDS)
    return tuple(conversation_id for (conversation_id,) in found)


def read_record(driver: Driver, conversation_id: str, key: int | None = None) -> ConversationRecord:
    """Return all rows of a conversation, damaged or not. It is found by its id, or by its `key` if that is given.
    Raises `UnknownConversation`."""
    statement, sought = (_FIND_RECORD, conversation_id) if key is None else (_FIND_RECORD_BY_KEY, key)
    found = driver.execute(statement, (sought,)).fetchone()
    if found is None:
        raise UnknownConversation(conversation_id)
    key, created_at, owner, parent, origin, seq, origin_check, sent, acknowledged, *head = found
    return ConversationRecord(
        id=conversation_id,
        created_at=created_at,
        head=HeadRow(*head),
        steps=steps(driver, key),
        owner=owner,
        parent=parent,
        origin=None if origin is None else Origin(origin, seq),
        outbox=tuple(map(OutboxRow._make, driver.execute(_DELIVERIES, (key,)))),
        details=writing.read(driver, key),
        outbox_checksum=_difference(sent, acknowledged or 0),
        origin_checksum=origin_check,
    )


def add_record(driver: Driver, record: ConversationRecord, known: Details | None = None) -> int:
    """Store a conversation with at least one step, and return its key. What lists show of it is computed from the
    steps, unless it is `known`. The files to which its steps refer are kept for it, as far as they are stored. Raises
    `StoreConflict` if the id is taken."""
    (key,) = driver.execute(_NEW_KEY).fetchone()
    named = {"id": record.id, "created_at": record.created_at, "owner": record.owner, "parent": record.parent}
    row = {"key": key, **named, **record.head._asdict()}
    if driver.execute(_ADD_CONVERSATION, [row[name] for name in _NAMED]).rowcount != 1:
        raise StoreConflict(f"There is already a conversation with the id {record.id}.")
    driver.executemany(_ADD_STEPS, [(key, *row) for row in record.steps])
    derived = details_of_rows(record.steps) if known is None else known
    writing.add(driver, key, details_row(derived))
    if record.outbox:
        driver.executemany(_ADD_DELIVERIES, [(key, *row) for row in record.outbox])
        writing.count_deliveries(driver, key)
    if digests := files_in(record.steps):
        files.use_all(driver, key, digests)
    if record.origin is not None:
        driver.execute(_ADD_ORIGIN, (key, *_origin_row(record.origin, record.steps)))
    return int(key)


def _origin_row(origin: Origin, steps: Sequence[EventRow]) -> tuple[str, int, bytes]:
    """Return the columns that say where a copy with these steps comes from."""
    chain = steps[origin.seq - 1].chain if 0 < origin.seq <= len(steps) else None
    checksum = origin_checksum(origin.conversation_id, origin.seq, chain)
    return origin.conversation_id, origin.seq, checksum


def _difference(sent: object, acknowledged: object) -> int | None:
    """Return the checksum of what must be in an outbox; None if the database is too old to say."""
    if sent is None:
        return None
    if isinstance(sent, int) and isinstance(acknowledged, int):
        return (sent - acknowledged) % DELIVERIES
    return -1  # damage has made it unreadable; no outbox has a negative sum
