"""The SQL by which conversations are found and read: their steps, whole records of them, and lists.

Each function but `survey` works within the transaction of its caller.

A page of a list holds the conversations that moved last first. It is found by the short columns of `conversations` and
by indexes; titles, metadata and origins are read only for the conversations of the page. A list reads no logs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.exc import IntegrityError

from ...states.errors import UnknownConversation
from ...states.roles import Role
from ..codec import DELIVERIES, origin_checksum
from ..errors import StoreConflict
from ..records import ConversationRecord, EventRow, HeadRow, Origin, OutboxRow, StorageFault
from ..summaries import (
    HEADER_COLUMNS,
    ConversationFilter,
    Details,
    details_of_rows,
    details_row,
    metadata_entry,
    place_of,
)
from . import writing
from .file import driver_of
from .schema import CONTEXT_CHANGES, acknowledgements, conversations, details, events, forks, metadata_entries, outbox
from .writing import prepared

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


_FIND_HEAD = prepared(
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
        *((_of_type(kind),) for kind in CONTEXT_CHANGES if kind not in ("details_changed", "tools_changed")),
        (_of_type("details_changed"), _brings("title")),
        (_of_type("details_changed"), _brings("metadata")),
    )
)
"""The newest step of each kind that changes the context. One with new details may leave the title or the metadata as it
was, and tools change from a certain turn on."""

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
    row = driver_of(connection).execute(_FIND_HEAD, (conversation_id,)).fetchone()
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
    """Return the numbers of the steps that brought the newest policy, schedule, title, metadata and whatever else is
    changed as a whole, as far as there are any. The first step and changes of the tools are left out."""
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
_FIND_RECORD = prepared(_CONVERSATION.where(conversations.c.id == bindparam("conversation_id")), "conversation_id")
_FIND_RECORD_BY_KEY = prepared(_CONVERSATION.where(conversations.c.key == bindparam("its_key")), "its_key")
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
    statement, sought = (_FIND_RECORD, conversation_id) if key is None else (_FIND_RECORD_BY_KEY, key)
    found = driver.execute(statement, (sought,)).fetchone()
    if found is None:
        raise UnknownConversation(conversation_id)
    key, created_at, owner, parent, origin, seq, origin_check, sent, acknowledged, *head = found
    return ConversationRecord(
        id=conversation_id,
        created_at=created_at,
        head=HeadRow(*head),
        steps=steps(connection, key),
        owner=owner,
        parent=parent,
        origin=None if origin is None else Origin(origin, seq),
        outbox=tuple(map(OutboxRow._make, driver.execute(_DELIVERIES, (key,)))),
        details=writing.read(driver, key),
        outbox_checksum=_difference(sent, acknowledged or 0),
        origin_checksum=origin_check,
    )


def add_copy(connection: Connection, source_id: str, record: ConversationRecord) -> int:
    """Store a conversation that was made from another one, which must still be there, and return its key."""
    found(connection, source_id)
    return add_record(connection, record)


def add_opened(connection: Connection, record: ConversationRecord, known: Details, parent: str | None) -> int:
    """Store a conversation that begins, and whose parent, if it has one, must still be there. Returns its key."""
    if parent is not None:
        found(connection, parent)
    return add_record(connection, record, known)


def add_record(connection: Connection, record: ConversationRecord, known: Details | None = None) -> int:
    """Store a conversation with at least one step, and return its key. What lists show of it is computed from the
    steps, unless it is `known`. Raises `StoreConflict` if the id is taken."""
    named = {"id": record.id, "created_at": record.created_at, "owner": record.owner, "parent": record.parent}
    (key,) = driver_of(connection).execute(_NEW_KEY).fetchone()
    try:
        connection.execute(_ADD_CONVERSATION, {"key": key, **named, **record.head._asdict()})
    except IntegrityError as error:
        raise StoreConflict(f"There is already a conversation with the id {record.id}.") from error.orig
    connection.execute(_ADD_STEPS, [{"conversation": key, **row._asdict()} for row in record.steps])
    derived = details_of_rows(record.steps) if known is None else known
    writing.add(driver_of(connection), key, details_row(derived))
    if record.outbox:
        connection.execute(_ADD_DELIVERIES, [{"conversation": key, **row._asdict()} for row in record.outbox])
        writing.count_deliveries(driver_of(connection), key)
    if record.origin is not None:
        connection.execute(_ADD_ORIGIN, {"conversation": key, **_origin_row(record.origin, record.steps)})
    return int(key)


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


class SummaryRow(NamedTuple):
    """A conversation in a list. `header` are the columns of its header."""

    id: str
    state_type: str
    waits: bool
    updated_at: int
    owner: str | None
    origin: str | None
    origin_seq: int | None
    wakes_at: int | None
    seq: int
    first_message: str | None
    header: tuple[str | None, ...]


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
_POSITION = select(conversations.c.updated_at, conversations.c.key)


def read(connection: Connection, wanted: ConversationFilter) -> tuple[SummaryRow, ...]:
    """Return conversations, the one that moved last first. Raises `UnknownConversation` for `before`."""
    page = _select_page(connection, wanted)
    statement = _SUMMARIES.where(conversations.c.key.in_(page.order_by(*_NEWEST_FIRST).limit(wanted.limit)))
    rows = connection.execute(statement)
    return tuple(SummaryRow._make((*row[:_BEFORE_HEADER], row[_BEFORE_HEADER:])) for row in rows)


def _select_page(connection: Connection, wanted: ConversationFilter) -> Select[tuple[int]]:
    """Return the statement that finds the keys of these conversations. Raises `UnknownConversation` for `before`."""
    statement = select(conversations.c.key).where(*_conditions(wanted))
    if wanted.before is not None:
        position = tuple_(*_position(connection, wanted.before))
        statement = statement.where(tuple_(conversations.c.updated_at, conversations.c.key) < position)
    return statement


def _position(connection: Connection, before: str) -> tuple[int, int]:
    """Return the place behind which a page begins, by moment and key. Raises `UnknownConversation`."""
    place = place_of(before)
    wanted = before if place is None else place.conversation_id
    found = connection.execute(_POSITION.where(conversations.c.id == wanted)).one_or_none()
    if place is not None:
        return place.updated_at, LARGEST if found is None else found.key
    if found is None:
        raise UnknownConversation(before)
    return found.updated_at, found.key


def _conditions(wanted: ConversationFilter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that these conversations fulfil, apart from their place in the list."""
    key = conversations.c.key
    if wanted.owner is not None:
        yield conversations.c.owner == wanted.owner
    if wanted.state is not None:
        yield conversations.c.state_type == wanted.state
    if wanted.metadata:
        yield key.in_(_having(tuple(metadata_entry(name, value) for name, value in wanted.metadata.items())))
    if wanted.parent is not None:
        yield key.in_(_detailed(details.c.parent, wanted.parent))
    if wanted.works_for is not None:
        yield key.in_(_detailed(details.c.works_for, wanted.works_for))
    if wanted.role is not None:
        yield _has_role(wanted.role)


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


_TABLE = "SELECT key, id FROM conversations NOT INDEXED"
_INDEX = "SELECT key, id FROM conversations INDEXED BY sqlite_autoindex_conversations_1"
_ROW = "SELECT key, id FROM conversations NOT INDEXED WHERE key = ?"
_LOOK_UP = "SELECT key FROM conversations WHERE id = ?"
_LARGEST_KEY = "SELECT max(conversation) FROM events"

MOST_KEYS = 10_000_000
"""Up to which key conversations are looked for one by one: damage may make any number of the largest."""


class Survey(NamedTuple):
    """The ids of the conversations that can be read, in the order in which these were created; the keys of those that
    the index of ids does not find; and a fault for each whose id is not certain or that is not found by it."""

    ids: tuple[str, ...]
    hidden: dict[str, int]
    faults: tuple[StorageFault, ...]


def survey(connection: Connection) -> Survey:
    """Look for all conversations. Reads as much as it can. Not for a transaction.

    SQLite finds a conversation by an index of ids, and lists conversations by reading the table. Damage of one of the
    two hides a conversation there, or gives it another id. So both are read, row by row where a page cannot be read,
    and a conversation counts as found if it can be read under an id.
    """
    driver = driver_of(connection)
    indexed, listed = dict(_rows(driver, _INDEX)[0]), dict[int, Any]()
    rows, is_whole = _rows(driver, _TABLE)
    listed.update(rows)
    if not is_whole:  # behind a page that cannot be read, too, there are rows
        numbers = [row[0] for row in _rows(driver, _LARGEST_KEY)[0] if type(row[0]) is int]
        for key in range(1, min(max(*numbers, *indexed, *listed, 0, 0), MOST_KEYS) + 1):
            listed.update(_rows(driver, _ROW, key)[0])
    found: dict[str, None] = {}
    hidden: dict[str, int] = {}
    faults: list[StorageFault] = []
    for key in sorted(indexed.keys() | listed.keys()):
        ids = [each for each in dict.fromkeys((listed.get(key), indexed.get(key))) if each is not None]
        known = next((each for each in ids if _finds(driver, each, key)), None)
        if known is None and _is_id(listed.get(key)):
            hidden[listed[key]] = key
        found.update(dict.fromkeys((known,) if known is not None else hidden.keys() - found.keys()))
        if known is None or len(ids) > 1:
            faults.append(StorageFault(_sentence(ids, known)))
    return Survey(tuple(found), hidden, tuple(faults))


def _is_id(found: object) -> bool:
    return type(found) is str and found == _shown(found)


def _sentence(ids: Sequence[object], known: str | None) -> str:
    shown = " or ".join(map(_shown, ids))
    if known is None:
        return f"The conversation {shown} is not found by its id: the index of ids, or the id, is damaged."
    return f"The id of the conversation {shown} is damaged; it can be read as {_shown(known)}."


def _shown(found: object) -> str:
    return str(found).encode(errors="replace").decode()


def _finds(driver: sqlite3.Connection, conversation_id: object, key: int) -> bool:
    """Whether the conversation with this key is found by this id."""
    return _is_id(conversation_id) and _rows(driver, _LOOK_UP, conversation_id)[0] == [(key,)]


def _rows(driver: sqlite3.Connection, sql: str, *parameters: object) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the rows up to the first that cannot be read, and whether all could be read."""
    rows: list[tuple[Any, ...]] = []
    with closing(driver.cursor()) as cursor:
        try:
            rows.extend(iter(cursor.execute(sql, parameters)))
        except sqlite3.DatabaseError:
            return rows, False
        return rows, True
