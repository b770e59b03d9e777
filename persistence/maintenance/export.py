"""Exports conversations as text that can be kept, searched, and imported by another database.

An export is lines of JSON. The first names the format. Each conversation is a line with its state, and a line for each
of its steps. The last line of all counts the conversations, so that an incomplete file is noticed.

    {"format":"turnwise-log","version":1}
    {"conversation":"6f0c…","created_at":"…","seq":2,"state":{…}}
    {"seq":1,"turn":0,"type":"opened","version":1,"at":"…","event_id":"…","payload":{…},"state":"…","chain":"…"}
    {"seq":2,…}
    {"conversations":1}

What is stored as JSON is written as it is stored, character by character. The digests of the steps cover it, so an
import can tell whether anything was changed, even if a later turnwise would write the step in another way. Deliveries
that are not acknowledged are left out, because the original database makes them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import chain

from ...states.errors import UnknownConversation
from ..errors import Damaged, StorageFailed
from ..ports import Store, find_all
from ..records.codec import from_microseconds
from ..records.conversation_record import ConversationRecord
from ..records.details import is_of_host
from ..records.integrity import read_record
from ..records.rows import EventRow

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
        sentence = "The owner and the start of the conversation cannot be read: the file is damaged."
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
