"""Encodes steps as rows, decodes rows into steps, and verifies that no step is missing or was changed.

The payload leaves out defaults, and values that have a column of their own, so a step takes little more space than its
text. A decoded row is equal to the step, to the microsecond.

SQLite checks the structure of its pages, not their contents, so it does not notice a bit that flipped in a text. So
each row of a log holds a short digest of itself and of all rows before it. In this chain no link can be changed,
dropped or moved without breaking the chain there. It protects against damage, not against somebody who computes it
again.

A conversation may begin with thousands of messages. They stand at the end of the first row, so that its context, which
each load needs, is read from the short rest without decoding them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pydantic_core import from_json

from ..states.effects import AnyEffect, Effect, StartTimer
from ..states.events import EVENTS, Answer, AnyEvent, Event, Opened, files_of
from ..states.states import AnyState, State, Timer
from ..states.step import Step
from ..states.values.messages import HistoryMessage
from ..states.values.turn import TurnEnded
from ..states.values.value import adapter_of, json_array, members
from .errors import Damaged
from .records import ConversationRecord, EventRow, HeadRow, StoredEntry

VERSION = 1
"""The version of the format in which events are written. A reader may have to convert older ones."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COLUMN_FIELDS = {
    event: {"type", "at", "event_id", *(("effect_id",) if issubclass(event, Answer) else ())} for event in EVENTS
}
"""For each type of event the fields that have a column of their own. A report may name an effect repeatedly, so its
effect is no column. Kept by type, because to ask pydantic for the classes of an event takes as long as to write it."""

_EVENT_TYPES: dict[str, Any] = {event.model_fields["type"].default: event for event in EVENTS}
_STATES_WITH_TIMER = frozenset(kind for kind in members(AnyState, State) if StartTimer in kind.IN_FLIGHT)
"""The states that can have a timer. Most steps end in one that cannot."""


@cache
def _effects() -> TypeAdapter[tuple[Effect, ...]]:
    return adapter_of(tuple[AnyEffect, ...])


@cache
def _state() -> TypeAdapter[AnyState]:
    return adapter_of(AnyState)


@cache
def _messages() -> TypeAdapter[tuple[HistoryMessage, ...]]:
    return adapter_of(tuple[HistoryMessage, ...])


class EncodedStep(NamedTuple):
    """A step as it is stored, before its link is known: the previous step may not be stored yet.

    `row` has an empty link, `content` is its digest, and `head` holds the columns of the `HeadRow` behind the link.
    `event` is the event of the step, and `size` how many characters its texts have.
    """

    row: EventRow
    content: bytes
    head: tuple[Any, ...]
    event: Event
    size: int

    @classmethod
    def of(cls, event: Event, step: Step) -> EncodedStep:
        """Encode a step. `Pure.`"""
        text = step.state.to_json()
        row = _event_row(event, step, digest(text))
        size = len(text) + len(row.payload) + len(row.effects or "") + len(row.ended or "")
        return cls(row, content(row[:-1]), _head_columns(step.state, text, row.at), event, size)


def encode(event: Event, step: Step, previous: bytes) -> tuple[EventRow, HeadRow]:
    """Return the rows of a step; `previous` is the link of the step before it. `Pure.`"""
    encoded = EncodedStep.of(event, step)
    row = encoded.row._replace(chain=link(previous, encoded.content))
    return row, HeadRow(row.seq, row.chain, *encoded.head)


def decode(row: EventRow) -> StoredEntry:
    """Return the step in a row. `Pure.`

    Raises `Damaged` if this turnwise cannot read the row. A row that can be read is not necessarily the one that was
    written; `check_link` tells.
    """
    event = decode_event(row)
    try:
        return StoredEntry(
            seq=row.seq,
            event=event,
            effects=_effects().validate_json(row.effects) if row.effects is not None else (),
            ended=adapter_of(TurnEnded).validate_json(row.ended) if row.ended is not None else None,
            turn=row.turn,
            digest=row.state,
            chain=row.chain,
            content=content_of(row),
        )
    except (ValueError, TypeError) as error:
        raise _unreadable(row) from error


def decode_event(row: EventRow) -> AnyEvent:
    """Return the event in a row. `Pure.` Raises `Damaged` like `decode`."""
    if row.version != VERSION or row.type not in _EVENT_TYPES:
        raise _unreadable(row)
    try:
        values = _payload_of(row)
        values["type"], values["at"] = row.type, from_microseconds(row.at)
        if row.event_id is not None:
            values["event_id"] = row.event_id
        if row.effect_id is not None:
            values["effect_id"] = row.effect_id
        event: AnyEvent = _EVENT_TYPES[row.type].model_validate(values)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _unreadable(row) from error
    return event


_REFERENCE = '"sha256":"'
"""What stands in the payload of each event that refers to a stored file, and in few others: within a text the quotation
marks are escaped."""


def files_in(rows: Iterable[EventRow]) -> tuple[str, ...]:
    """Return the digests of the stored files to which these steps refer, each once. What cannot be read refers to none.
    `Pure.`"""
    digests: dict[str, None] = {}
    for row in rows:
        if _REFERENCE in str(row.payload):
            with suppress(Damaged):
                digests |= {file.sha256: None for file in files_of(decode_event(row)) if file.sha256}
    return tuple(digests)


def _payload_of(row: EventRow) -> Any:
    """Return the payload as data. pydantic's parser takes a third of the time of Python's, but reads neither values
    that are nested more than 200 levels deep nor half of a surrogate pair."""
    try:
        return from_json(row.payload)
    except ValueError:
        return json.loads(row.payload)


def _unreadable(row: EventRow) -> Damaged:
    return Damaged(row.seq, f"Step {row.seq} cannot be read: it is damaged, or a newer turnwise wrote it.")


def decode_state(head: HeadRow) -> AnyState:
    """Return the state that a conversation rests in. `Pure.` Raises `Damaged`."""
    try:
        return _state().validate_json(head.state)
    except (ValueError, TypeError) as error:
        sentence = "The state of the conversation cannot be read: it is damaged, or a newer turnwise wrote it."
        raise Damaged(head.seq, sentence) from error


def next_timer(state: State) -> datetime | None:
    """Return when the first of the state's timers is due. `Pure.`"""
    if type(state) not in _STATES_WITH_TIMER:
        return None
    return min([value.due for value in vars(state).values() if type(value) is Timer], default=None)


def to_microseconds(at: datetime) -> int:
    """Return a moment as microseconds since 1970. `Pure.`"""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(at: int) -> datetime:
    """Return the moment, in UTC, exactly. `Pure.`"""
    return _EPOCH + timedelta(microseconds=at)


def _event_row(event: Event, step: Step, state: bytes) -> EventRow:
    """Return the row of a step without its link."""
    book, fields, columns = vars(step.state.book), vars(event), _COLUMN_FIELDS[type(event)]
    # By position, because a row by names takes three times as long.
    return EventRow(
        book["seq"],
        fields.get("event_id"),
        fields["effect_id"] if "effect_id" in columns else None,
        fields["type"],
        VERSION,
        to_microseconds(fields["at"]),
        book["turn"],
        _payload(event, columns),
        effects_text(step.effects),
        step.ended.to_json() if step.ended else None,
        state,
        b"",
    )


def head_row(state: State, text: str, row: EventRow) -> HeadRow:
    """Return the head row of a conversation whose newest step is `row`; `text` is the state as JSON. `Pure.`"""
    return HeadRow(row.seq, row.chain, *_head_columns(state, text, row.at))


def _head_columns(state: State, text: str, at: int) -> tuple[Any, ...]:
    """Return the columns of a head row behind the link, for a step that happened at `at`."""
    fields, due = vars(state), next_timer(state)
    wake = vars(fields["book"])["wake"]
    return (
        fields["type"],
        int(state.ends_with_process),
        None if due is None else to_microseconds(due),
        at,
        text,
        None if wake is None else to_microseconds(wake),
    )


def _payload(event: Event, columns: set[str]) -> str:
    """Return the event as JSON, without what has a column of its own."""
    if type(event) is Opened and event.messages:
        return _with_given_messages(event.to_json(columns | {"messages"}), event.messages)
    return event.to_json(columns)


def effects_text(effects: tuple[Effect, ...]) -> str | None:
    """Return effects as a row holds them: a JSON array, or None if there are none. `Pure.`"""
    return json_array(effects) if effects else None


def content_of(row: EventRow) -> bytes:
    """Return the digest of a row without its link. `Pure.`"""
    return content(row[:-1])


SIZE = 16
"""The length of every digest, in bytes."""

DELIVERIES = 2**48
"""Checksums of deliveries are counted modulo this number, so that SQLite can add them as integers."""

GENESIS = bytes(SIZE)
"""The link before the first one."""


def digest(text: str) -> bytes:
    """Return the digest of a text, also of one that damage has made invalid. `Pure.`"""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=SIZE).digest()


def content(columns: Sequence[object]) -> bytes:
    """Return the digest of a row's columns, whatever types damage has given them. `Pure.`

    The columns are written as Python writes them in ASCII. That tells numbers, texts, bytes and None apart, can write
    half of a surrogate pair, and takes half the time of JSON, which matters where a whole log is verified.
    """
    return blake2b(ascii(tuple(columns)).encode("ascii"), digest_size=SIZE).digest()


def link(before: bytes, row: bytes) -> bytes:
    """Return the next link of the chain, from the link before it and the digest of the row. `Pure.`"""
    return blake2b(before + row, digest_size=SIZE).digest()


def delivery_checksum(target: object, effect_id: object) -> int:
    """Return a number for a delivery. The sum of those in an outbox, modulo `DELIVERIES`, changes when one of them is
    lost or goes to another target. `Pure.`"""
    return int.from_bytes(content((target, effect_id))[:6], "big")


def deliveries_checksum(rows: Iterable[tuple[object, ...]]) -> int:
    """Return the sum of the checksums of deliveries, each a target, an effect id and anything else. `Pure.`"""
    return sum(delivery_checksum(*row[:2]) for row in rows) % DELIVERIES


def origin_checksum(origin: object, seq: object, chain: object) -> bytes:
    """Return the digest by which it is found that the origin of a copy was changed: its id, the newest step that was
    copied, and the link of that step. `Pure.`"""
    return content((origin, seq, chain))


_NAME = "messages"
_MEMBER = f'"{_NAME}"'
_JSON = json.JSONDecoder()


def _with_given_messages(payload: str, messages: tuple[HistoryMessage, ...]) -> str:
    """Return the payload of an `Opened` with these messages as its last member. `Pure.`"""
    separator = "" if payload == "{}" else ","
    return f"{payload[:-1]}{separator}{_MEMBER}:{_messages().dump_json(messages).decode()}}}"


def without_given_messages(row: EventRow) -> EventRow:
    """Return the row of an `Opened` without its messages, which are not decoded. `Pure.`

    A row without messages, and one that was not written like this, is returned as it is.
    """
    try:
        end = _start_of_messages(row.payload)
    except (ValueError, TypeError, IndexError, RecursionError):
        return row
    return row if end is None else row._replace(payload=row.payload[:end].rstrip(",") + "}")


def _start_of_messages(payload: str) -> int | None:
    """Return where the member of the messages begins, which is the last one; None if there is none."""
    if _MEMBER not in payload:
        return None
    position = 1
    while payload[position] != "}":
        position += payload[position] == ","
        name, end = _JSON.raw_decode(payload, position)
        if name == _NAME:
            return position
        _, position = _JSON.raw_decode(payload, end + 1)
    return None


def read_steps(rows: Iterable[EventRow], seq: int = 0, chain: bytes = GENESIS) -> tuple[StoredEntry, ...]:
    """Return the steps in these rows, which follow the step `seq`, whose link is `chain`. `Pure.`

    Raises `Damaged` if a step cannot be read, is missing between two others, or is not what was stored.
    """
    entries: list[StoredEntry] = []
    for row in rows:
        entry = decode(row)
        check_link(entry, seq, chain)
        entries.append(entry)
        seq, chain = entry.seq, entry.chain
    return tuple(entries)


def read_record(record: ConversationRecord) -> tuple[StoredEntry, ...]:
    """Return all steps of a record. `Pure.`

    Raises `Damaged` like `read_steps`, and if the head row does not belong to the newest step.
    """
    entries = read_steps(record.steps)
    seq, chain, state = (entries[-1].seq, entries[-1].chain, entries[-1].digest) if entries else (0, GENESIS, b"")
    check_end(record.head, seq, chain)
    check_state(record.head, state)
    return entries


def check_link(entry: StoredEntry, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless `entry` is unchanged and follows the step `seq`, whose link is `chain`. `Pure.`"""
    if entry.seq != seq + 1:
        raise missing(seq + 1)
    if link(chain, entry.content) != entry.chain:
        raise Damaged(entry.seq, f"Step {entry.seq} is not what was stored: the log is damaged.")


def check_end(head: HeadRow, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless the step `seq`, whose link is `chain`, is the newest one by the head row. `Pure.`"""
    if type(head.seq) is int and head.seq > seq:
        raise missing(seq + 1)
    if (head.seq, head.chain) != (seq, chain):
        raise Damaged(seq, f"The head of the conversation is not its newest step, {seq}: the log is damaged.")


def check_state(head: HeadRow, state: bytes) -> None:
    """Raise `Damaged` unless `state` is the digest of the state in the head row. `Pure.`"""
    if type(head.state) is not str or digest(head.state) != state:
        raise Damaged(head.seq, f"The state behind step {head.seq} is not what was stored: the log is damaged.")


def missing(seq: int) -> Damaged:
    """Return the error for a step that should be there. `Pure.`"""
    return Damaged(seq, f"Step {seq} is missing: the log is damaged.")
