"""The SQL by which conversations change: steps, receipts of deliveries, and what a list shows of conversations.

Each function works within the transaction of its caller. One `executemany` of the driver does the work of a whole
batch.

Titles, metadata and roles follow from the log. They are written together with the steps that change them, and with no
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from sqlalchemy import BigInteger, ColumnElement, bindparam, delete, exists, insert, literal_column, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from ...states.events import DetailsChanged, UserMessage
from ..codec import DELIVERIES, EncodedStep, deliveries_checksum, delivery_checksum, link
from ..errors import StoreConflict
from ..records import DetailsRow, EventRow, HeadRow, Outgoing
from ..summaries import HEADER_COLUMNS, given_title, header_column, message_title
from ..summaries import metadata_entries as metadata_entries_of
from .pending import PendingResult
from .schema import acknowledgements, conversations, details, events, metadata_entries, outbox
from .statements import Driver, Statement, prepared


class LogPosition:
    """The newest step of a conversation, its number and its link, as far as one log knows it. `key` is the key of the
    conversation's own row.

    Only what has committed a step changes it, right after the commit, so that a step counts although its caller stopped
    waiting.

    `origin` is the link of the first step. `in_doubt` is the link of a step whose commit was reported as failed: the
    database may have stored it. `is_titled` says that a message of a user has given the conversation its title, so that
    no later one need try.
    """

    __slots__ = ("chain", "in_doubt", "is_titled", "key", "origin", "seq")

    def __init__(self, key: int, seq: int, chain: bytes, origin: bytes, *, is_titled: bool) -> None:
        self.key: int = key
        self.seq: int = seq
        self.chain: bytes = chain
        self.origin: bytes = origin
        self.is_titled: bool = is_titled
        self.in_doubt: bytes | None = None


class Append(PendingResult):
    """A step to be stored behind `position`, and the result that its caller waits for. One object, because the garbage
    collector walks what waits.

    Once it is linked, `chain` is its link, and `details` is its event if that changes what lists show.
    """

    __slots__ = ("chain", "details", "encoded", "is_stored", "outgoing", "position")

    def __init__(self, position: LogPosition, encoded: EncodedStep, outgoing: tuple[Outgoing, ...]) -> None:
        super().__init__()
        self.position: LogPosition = position
        self.encoded: EncodedStep = encoded
        self.outgoing: tuple[Outgoing, ...] = outgoing
        self.is_stored: bool = False
        self.chain: bytes
        self.details: DetailsChanged | UserMessage | None

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of the step."""
        return self.is_stored or self.error is not None

    def link(self) -> None:
        """Link the step to the newest one. Raises `StoreConflict` if it does not follow that."""
        position, encoded = self.position, self.encoded
        if encoded.row.seq != position.seq + 1:
            raise StoreConflict("The step does not follow the newest step of its conversation.")
        self.chain = link(position.chain, encoded.content)
        event, self.details = encoded.event, None
        if isinstance(event, DetailsChanged) or (isinstance(event, UserMessage) and not position.is_titled):
            self.details = event

    def note_stored(self) -> None:
        """The linked step is stored: its position moves behind it."""
        position = self.position
        position.seq, position.chain, position.in_doubt = self.encoded.row.seq, self.chain, None
        position.is_titled = position.is_titled or isinstance(self.details, UserMessage)
        self.is_stored = True


class OutboxKey(NamedTuple):
    """The key of a row of the outbox.

    `origin` is the link of the conversation's first step. The key of a deleted conversation may be given to
    another one, whose rows must not be taken for those of the first.
    """

    conversation: int
    target: str
    effect_id: int
    origin: bytes


class Postponement(NamedTuple):
    """How many attempts to deliver have failed, and when the next one is due."""

    attempts: int
    next_attempt: int


_HEAD = ("head_key", "head_seq", "head_chain")
_AT_HEAD = (
    conversations.c.key == bindparam("head_key"),
    conversations.c.seq == bindparam("head_seq"),
    conversations.c.chain == bindparam("head_chain"),
)
_MODULUS: ColumnElement[int] = literal_column(str(DELIVERIES))
_ADVANCE = prepared(
    update(conversations)
    .where(*_AT_HEAD)
    .values(
        {name: bindparam(name) for name in HeadRow._fields}
        | {"sent": (conversations.c.sent + bindparam("more")) % _MODULUS}
    ),
    *HeadRow._fields,
    "more",
    *_HEAD,
)
_ADD_STEP = prepared(insert(events), "conversation", *EventRow._fields)
_NEGATE_SEQ = prepared(update(conversations).where(*_AT_HEAD).values(seq=-conversations.c.seq), *_HEAD)

_ADDRESS = ("conversation", "target", "effect_id", "seq")
_SEND = prepared(
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
_ACKNOWLEDGE = prepared(delete(outbox).where(*_AT_KEY), *_KEY)
_POSTPONE = prepared(
    update(outbox)
    .where(*_AT_KEY)
    .values({name: bindparam(name) for name in Postponement._fields} | {"begun": literal_column("0")}),
    *Postponement._fields,
    *_KEY,
)
_BEGIN = prepared(update(outbox).where(*_AT_KEY).values(begun=bindparam("begun")), "begun", *_KEY)

_COUNTED = upsert(acknowledgements).from_select(
    ["conversation", "checksum"],
    select(outbox.c.conversation, bindparam("checksum", type_=BigInteger())).where(*_AT_KEY),
)
_COUNT = prepared(
    _COUNTED.on_conflict_do_update(
        index_elements=[acknowledgements.c.conversation],
        set_={"checksum": (acknowledgements.c.checksum + _COUNTED.excluded.checksum) % _MODULUS},
    ),
    "checksum",
    *_KEY,
)
"""Counts a delivery as acknowledged, if it is in the outbox."""

_DELIVERIES = prepared(
    select(outbox.c.target, outbox.c.effect_id).where(outbox.c.conversation == bindparam("conversation")),
    "conversation",
)
_FORGET_ACKNOWLEDGED = prepared(
    delete(acknowledgements).where(acknowledgements.c.conversation == bindparam("conversation")), "conversation"
)
_SET_SENT = prepared(
    update(conversations).where(conversations.c.key == bindparam("conversation")).values(sent=bindparam("sum")),
    "sum",
    "conversation",
)


def advance(driver: Driver, steps: Sequence[Append]) -> bool:
    """Store linked steps of different conversations with their deliveries, by one statement a table, and the few
    changes of titles and metadata one by one.

    Returns False if one of the conversations does not stand at the position of its step; the caller must roll back
    then. The link is compared too, so that another conversation in the place of a deleted one is not taken for it.
    Raises the driver's IntegrityError if an event's id, or its effect's, is already in the log.
    """
    if driver.executemany(_ADVANCE, map(_head_values, steps)).rowcount != len(steps):
        return False
    driver.executemany(_ADD_STEP, map(_step_values, steps))
    sent = [
        (one.position.key, each.target, each.effect_id, one.encoded.row.seq) for one in steps for each in one.outgoing
    ]
    if sent:
        driver.executemany(_SEND, sent)
    for one in steps:
        if one.details is not None:
            change(driver, one.position.key, one.details)
    return True


# The driver takes the values of one row at a time, so that those of a whole batch never lie in memory. It binds a
# bytearray at once; for bytes it looks for an adapter, which takes three times as long.


def _head_values(one: Append) -> tuple[object, ...]:
    """Return the number and the link of the step, the other columns of its head, and the position that it follows."""
    encoded, position = one.encoded, one.position
    sent = deliveries_checksum((each.target, each.effect_id) for each in one.outgoing) if one.outgoing else 0
    before = (position.key, position.seq, bytearray(position.chain))
    return (encoded.row.seq, bytearray(one.chain), *encoded.head, sent, *before)


def _step_values(one: Append) -> tuple[object, ...]:
    """Return the columns of the step. The last two are the digest of its state and its link, which is empty until
    here."""
    row = one.encoded.row
    return (one.position.key, *row[:-2], bytearray(row.state), bytearray(one.chain))


def write_again(driver: Driver, step: Append) -> bool:
    """Write the head of a conversation once more. Returns False if this step is not the newest one.

    If the COMMIT that follows succeeds, everything that was written before is on the disk as well. The number is
    negated and negated back, because SQLite writes nothing where nothing changes.
    """
    key, seq, chain = step.position.key, step.encoded.row.seq, step.chain
    return all(driver.execute(_NEGATE_SEQ, (key, number, chain)).rowcount == 1 for number in (seq, -seq))


def note(driver: Driver, receipts: Iterable[tuple[OutboxKey, Postponement | None]]) -> None:
    """Remove deliveries that have arrived from the outbox, and store the failed attempts of the others."""
    delivered, failed = [], []
    for key, postponement in receipts:
        if postponement is None:
            delivered.append(key)
        else:
            failed.append((*postponement, *key))
    if delivered:
        driver.executemany(_COUNT, [(delivery_checksum(key.target, key.effect_id), *key) for key in delivered])
        driver.executemany(_ACKNOWLEDGE, delivered)
    if failed:
        driver.executemany(_POSTPONE, failed)


def begin_attempt(driver: Driver, key: OutboxKey, begun: int) -> None:
    """Store in how many attempts to deliver this the process has died, if it dies in the one that begins now."""
    driver.execute(_BEGIN, (begun, *key))


def count_deliveries(driver: Driver, conversation: int) -> None:
    """Let what is in the outbox of a conversation be what must be in it."""
    rows = driver.execute(_DELIVERIES, (conversation,)).fetchall()
    driver.execute(_FORGET_ACKNOWLEDGED, (conversation,))
    driver.execute(_SET_SENT, (deliveries_checksum(rows), conversation))


DetailsEvent: TypeAlias = UserMessage | DetailsChanged
"""An event that changes the details of a conversation."""

_TEXTS = ("first_message", *HEADER_COLUMNS)
_OF_CONVERSATION = details.c.conversation == bindparam("head_key")
_READ = prepared(select(*(details.c[name] for name in _TEXTS)).where(_OF_CONVERSATION), "head_key")
_READ_ENTRIES = prepared(
    select(metadata_entries.c.entry)
    .where(metadata_entries.c.conversation == bindparam("head_key"))
    .order_by(metadata_entries.c.entry),
    "head_key",
)
_ADD = prepared(insert(details), "conversation", *_TEXTS)
_ADD_ENTRY = prepared(insert(metadata_entries), "entry", "conversation")
_REMOVE = prepared(delete(details).where(_OF_CONVERSATION), "head_key")
_REMOVE_ENTRIES = prepared(
    delete(metadata_entries).where(metadata_entries.c.conversation == bindparam("head_key")), "head_key"
)


def _set(column: str, *, once: bool = False) -> Statement:
    """Return the statement that sets a column, where it already has a value or, with `once`, only where it has none."""
    row = upsert(details).values({"conversation": bindparam("conversation"), column: bindparam(column)})
    where = details.c[column].is_(None) if once else None
    change = row.on_conflict_do_update(
        index_elements=[details.c.conversation], set_={column: row.excluded[column]}, where=where
    )
    return prepared(change, "conversation", column)


_SET_FIRST_MESSAGE = _set("first_message", once=True)
_SET_TITLE = _set("title")
_SET_METADATA = _set("metadata")


def read(driver: Driver, key: int) -> DetailsRow:
    """Return what is stored of the details of a conversation, damaged or not."""
    first_message, *header = driver.execute(_READ, (key,)).fetchone() or (None,) * len(_TEXTS)
    entries = tuple(entry for (entry,) in driver.execute(_READ_ENTRIES, (key,)))
    return DetailsRow(tuple(header), first_message, entries)


def add(driver: Driver, key: int, row: DetailsRow) -> None:
    """Store the details of a conversation that has none so far."""
    if any(text is not None for text in (row.first_message, *row.header)):
        driver.execute(_ADD, (key, row.first_message, *row.header))
        _add_entries(driver, key, row.entries)


def replace(driver: Driver, key: int, row: DetailsRow) -> None:
    """Store the details of a conversation in place of those that are stored."""
    driver.execute(_REMOVE, (key,))
    driver.execute(_REMOVE_ENTRIES, (key,))
    add(driver, key, row)


def change(driver: Driver, key: int, event: DetailsEvent) -> None:
    """Store what this event changes. A title that a message gives stays once it is stored."""
    if isinstance(event, UserMessage):
        driver.execute(_SET_FIRST_MESSAGE, (key, message_title(event.text, event.files)))
        return
    if event.title is not None:
        driver.execute(_SET_TITLE, (key, given_title(event.title)))
    if event.metadata is not None:
        driver.execute(_SET_METADATA, (key, header_column("metadata", event.metadata)))
        driver.execute(_REMOVE_ENTRIES, (key,))
        _add_entries(driver, key, metadata_entries_of(event.metadata))


def _add_entries(driver: Driver, key: int, entries: tuple[bytes, ...]) -> None:
    driver.executemany(_ADD_ENTRY, [(entry, key) for entry in entries])
