"""Writes conversations as text, to be kept, searched, and taken in again by another database.

An export is lines of JSON. The first names the format. Each conversation is a line that tells where it rests, and a
line for each of its steps; the last line of all counts the conversations, so that a file that was cut off is noticed.

    {"format":"turnwise-log","version":1}
    {"conversation":"6f0c…","created_at":"…","seq":2,"state":{…}}
    {"seq":1,"turn":0,"type":"opened","version":1,"at":"…","event_id":"…","payload":{…},"state":"…","chain":"…"}
    {"seq":2,…}
    {"conversations":1}

What stands in the tables as JSON is written as it stands there, letter by letter: the digests of the steps cover it, so
whoever imports the file can tell whether anything was changed, also when a later turnwise would write it otherwise.
What is still to be delivered is left out: the database that the export was made of delivers it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import chain

from ...states.errors import UnknownConversation
from ..errors import Damaged
from ..ports import Store
from ..records.codec import from_microseconds
from ..records.conversation_record import ConversationRecord
from ..records.integrity import read_record
from ..records.rows import EventRow

FORMAT = "turnwise-log"
VERSION = 1


async def export_conversation(store: Store, conversation_id: str) -> Iterator[str]:
    """The lines of a conversation, without line ends, as they stand between `first_line` and `last_line`.

    Raises `UnknownConversation`, and `Damaged`: what is not whole cannot be taken in again.
    """
    record = await store.read_record(conversation_id)
    await asyncio.to_thread(read_record, record)
    return lines_of(record)


async def export_all(store: Store) -> AsyncIterator[tuple[str, Iterator[str] | Damaged]]:
    """The id and the lines of each conversation of a database, the one that was made first first; for one that is
    damaged, the error. What is deleted meanwhile is left out."""
    for conversation_id in await store.ids():
        try:
            yield conversation_id, await export_conversation(store, conversation_id)
        except UnknownConversation:
            continue
        except Damaged as damaged:
            yield conversation_id, damaged


def first_line() -> str:
    """The line that names the format. `Pure.`"""
    return _json({"format": FORMAT, "version": VERSION})


def last_line(conversations: int) -> str:
    """The line that says how many conversations stand before it. `Pure.`"""
    return _json({"conversations": conversations})


def lines_of(record: ConversationRecord) -> Iterator[str]:
    """The lines of a conversation whose steps were checked. Raises `Damaged` if its own row cannot be read."""
    try:
        head = _head(record)
        head.encode()
    except (TypeError, ValueError, OverflowError) as error:
        sentence = "Who the conversation belongs to, and when it began, cannot be read: the file is damaged."
        raise Damaged(0, sentence) from error
    return chain((head,), map(_step, record.steps))


def _head(record: ConversationRecord) -> str:
    origin = record.origin
    told: dict[str, object] = {
        "conversation": record.id,
        "created_at": from_microseconds(record.created_at).isoformat(),
        "owner": record.owner,
        "parent": record.parent,
        "origin": None if origin is None else {"conversation": origin.conversation_id, "seq": origin.seq},
        "seq": record.head.seq,
    }
    return _object(told, {"state": record.head.state})


def _step(row: EventRow) -> str:
    told: dict[str, object] = {
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
    return _object(told, {**texts, **digests})


def _object(told: dict[str, object], texts: dict[str, str | None]) -> str:
    """An object with these members, and with those that are JSON already. What there is not is left out."""
    members = {**{name: _json(value) for name, value in told.items() if value is not None}, **texts}
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items() if text is not None) + "}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
