"""Exports conversations as text that can be kept and searched, and imports them into another database.

An export is lines of JSON. The first names the format. Each conversation is a line with its state, and a line for each
of its steps. The last line of all counts the conversations, so that an incomplete file is noticed.

    {"format":"turnwise-log","version":1}
    {"conversation":"6f0c…","created_at":"…","seq":2,"state":{…}}
    {"seq":1,"turn":0,"type":"opened","version":1,"at":"…","event_id":"…","payload":{…},"state":"…","chain":"…"}
    {"seq":2,…}
    {"conversations":1}

The files of a conversation stand in front of it; `files` says how.

What is stored as JSON is written as it is stored, character by character. The digests of the steps cover it, so an
import can tell whether anything was changed, even if a later turnwise would write the step in another way. Deliveries
that are not acknowledged are left out, because the original database makes them.

What is imported is stored in one transaction, or not at all. Nothing of an imported conversation goes on by itself,
whatever its log says: a file may come from anybody, and if it comes from a database that is still in use, the original
goes on there. What was to be delivered is not part of an export, so nothing is said to anybody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from ...states.context import Context
from ...states.errors import Refused, UnknownConversation
from ...states.events import Event, Opened, Resumed, ScheduleChanged
from ...states.machine import begin, transition
from ...states.states import AnyState, Busy
from ..codec import GENESIS, decode_event, decode_state, encode, from_microseconds, read_record
from ..errors import Damaged, StorageFailed, StoreConflict
from ..ports import Store, find_all
from ..records import ConversationRecord, EventRow
from ..summaries import is_of_host
from .files import ImportedFiles, keep_for, store_before

FORMAT = "turnwise-log"
VERSION = 1


async def export_conversation(store: Store, conversation_id: str) -> Iterator[str]:
    """Return the lines of a conversation, without line ends; they belong between `first_line` and `last_line`.

    Raises `UnknownConversation` and `Damaged`: a damaged conversation could not be imported.
    """
    record = await store.read_record(conversation_id)
    await asyncio.to_thread(read_record, record)
    return lines_of(record)


async def export_all(store: Store) -> AsyncIterator[tuple[str, Iterator[str] | Damaged]]:
    """Yield the id and the lines of each conversation, in the order in which they were created; for a damaged one the
    error instead of its lines, and for one that a damaged file hides an empty id. A conversation that is deleted
    meanwhile is left out, and so is one that a host made for itself, and will remove: it could not be imported."""
    ids, faults = await find_all(store)
    for fault in faults:
        yield "", Damaged(0, fault.sentence)
    for conversation_id in ids:
        try:
            record = await store.read_record(conversation_id)
            await asyncio.to_thread(read_record, record)
            if not is_of_host(record.steps[0]):
                yield conversation_id, lines_of(record)
        except UnknownConversation:
            continue
        except Damaged as damaged:
            yield conversation_id, damaged
        except StorageFailed as failure:
            yield conversation_id, Damaged(0, failure.sentence)


def first_line() -> str:
    """Return the line that names the format. `Pure.`"""
    return _json({"format": FORMAT, "version": VERSION})


def last_line(conversations: int) -> str:
    """Return the line that says how many conversations precede it. `Pure.`"""
    return _json({"conversations": conversations})


def lines_of(record: ConversationRecord) -> Iterator[str]:
    """Return the lines of a conversation whose steps were verified. `Pure.` Raises `Damaged` if its own row cannot be
    read."""
    try:
        head = _head(record)
        head.encode()
    except (TypeError, ValueError, OverflowError) as error:
        sentence = "The owner and the start of the conversation cannot be read: the log is damaged."
        raise Damaged(0, sentence) from error
    return chain((head,), map(_step, record.steps))


def _head(record: ConversationRecord) -> str:
    origin = record.origin
    values: dict[str, object] = {
        "conversation": record.id,
        "created_at": from_microseconds(record.created_at).isoformat(),
        "owner": record.owner,
        "parent": record.parent,
        "origin": None if origin is None else {"conversation": origin.conversation_id, "seq": origin.seq},
        "seq": record.head.seq,
    }
    return _object(values, {"state": record.head.state})


def _step(row: EventRow) -> str:
    values: dict[str, object] = {
        "seq": row.seq,
        "turn": row.turn,
        "type": row.type,
        "version": row.version,
        "at": from_microseconds(row.at).isoformat(),
        "event_id": row.event_id,
        "effect_id": row.effect_id,
    }
    texts = {"payload": row.payload, "effects": row.effects, "ended": row.ended}
    digests = {"state": f'"{row.state.hex()}"', "chain": f'"{row.chain.hex()}"'}
    return _object(values, {**texts, **digests})


def _object(values: dict[str, object], texts: dict[str, str | None]) -> str:
    """Return an object with these members, and with those that are JSON already. Members that are None are left out."""
    members = {**{name: _json(value) for name, value in values.items() if value is not None}, **texts}
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items() if text is not None) + "}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Imported:
    """A conversation of an export, and how many steps it has in the store. `already_stored`: the store had it before,
    equal step by step. `closed`: it was under way or had a schedule, and has a step more for each that ended it."""

    conversation_id: str
    steps: int
    already_stored: bool
    closed: bool = False


def new_record(conversation_id: str, opened: Opened) -> ConversationRecord:
    """Return a conversation that has only begun, so that it can be stored together with others. `Pure.`"""
    row, head = encode(opened, begin(opened), GENESIS)
    return ConversationRecord(conversation_id, row.at, head, (row,), owner=opened.owner)


async def import_records(
    store: Store, records: Iterable[ConversationRecord], files: ImportedFiles | None = None
) -> tuple[Imported, ...]:
    """Store conversations that `read_export` returned, all of them or none, with the files that it has read. One that
    is stored already, equal step by step, is left as it is. Nothing of the new ones goes on by itself. Raises
    `StoreConflict` if another conversation has the same id, and `Damaged` for a state that does not belong to its
    steps."""
    imported: list[Imported] = []
    brought_in = tuple(records)
    new: dict[str, ConversationRecord] = {}
    for record in brought_in:
        brought = at_rest(record)
        stored = new.get(record.id) or await _stored(store, record.id)
        if stored is None:
            stored = new[record.id] = brought
        elif stored.steps not in (record.steps, brought.steps):
            sentence = f"There is already another conversation with the id {record.id}; nothing was imported."
            raise StoreConflict(sentence)
        is_new, count = stored is brought, len(stored.steps)
        closed = count > len(record.steps)
        imported.append(Imported(record.id, count, already_stored=not is_new, closed=closed))
    await store_before(store, new.values(), files)
    await store.write_records(new.values())
    await keep_for(store, brought_in, files)
    return tuple(imported)


def at_rest(record: ConversationRecord) -> ConversationRecord:
    """Return the conversation with the steps by which everything ends that is under way in it, and with nothing to be
    delivered. Raises `Damaged` if its state does not belong to its steps.

    A conversation that was under way gets one step more, by which its turn fails as after too many crashes. Calls that
    were running are told to be in doubt, those that had not begun did not run; questions, approvals, sub-agents and
    timers are waited for no longer; messages that waited keep waiting until somebody writes or tries again. A schedule
    is taken away by another step. These steps follow from the log alone, so an export that is imported twice is
    recognised. `Pure.`
    """
    state, rows, head = decode_state(record.head), list(record.steps), record.head
    if not isinstance(state, Busy) and state.book.wake is None:
        return record._replace(outbox=(), outbox_checksum=None)
    at = from_microseconds(rows[-1].at)
    try:
        context = Context()
        for row in rows:
            context = context.after(decode_event(row))
        while (event := _ending(state, at)) is not None:
            step = transition(state, event, context)
            row, head = encode(event, step, rows[-1].chain)
            rows.append(row)
            state = step.state
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, Refused) as error:
        sentence = f"The conversation {record.id} cannot be imported: its state does not belong to its steps."
        raise Damaged(record.head.seq, sentence) from error
    return record._replace(head=head, steps=tuple(rows), outbox=(), details=None, outbox_checksum=None)


def _ending(state: AnyState, at: datetime) -> Event | None:
    """Return the event that ends what is still under way in this state, or None if nothing is. `Pure.`"""
    if isinstance(state, Busy):
        return Resumed(at=at, imported=True)
    if state.book.wake is not None:
        return ScheduleChanged(event_id=f"imported-{state.book.seq}", at=at)
    return None


async def _stored(store: Store, conversation_id: str) -> ConversationRecord | None:
    try:
        return await store.read_record(conversation_id)
    except UnknownConversation:
        return None
