"""Imports conversations that were read from an export.

All of them are stored in one transaction, or none. A conversation that was in the middle of a turn is stored as it was,
and the engine that opens the database next takes it over as after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...states.errors import UnknownConversation
from ...states.events import Opened
from ...states.machine import begin
from ..errors import StoreConflict
from ..ports import Store
from ..records.codec import encode
from ..records.conversation_record import ConversationRecord
from ..records.digests import GENESIS


@dataclass(frozen=True)
class Imported:
    """A conversation of an export, and how many steps it has. `already_stored`: the store had it before, equal step by
    step."""

    conversation_id: str
    steps: int
    already_stored: bool


def new_record(conversation_id: str, opened: Opened) -> ConversationRecord:
    """Return a conversation that has only begun, so that it can be stored together with others. `Pure.`"""
    row, head = encode(opened, begin(opened), GENESIS)
    return ConversationRecord(conversation_id, row.at, head, (row,), owner=opened.owner)


async def import_records(store: Store, records: Iterable[ConversationRecord]) -> tuple[Imported, ...]:
    """Store conversations that `read_export` returned, all of them or none. One that is stored already, equal step by
    step, is left as it is. Raises `StoreConflict` if another conversation has the same id."""
    imported: list[Imported] = []
    new: dict[str, ConversationRecord] = {}
    for record in records:
        stored = new.get(record.id) or await _stored(store, record.id)
        if stored is None:
            new[record.id] = record
        elif stored.steps != record.steps:
            sentence = f"There is already another conversation with the id {record.id}; nothing was imported."
            raise StoreConflict(sentence)
        imported.append(Imported(record.id, len(record.steps), already_stored=stored is not None))
    await store.write_records(new.values())
    return tuple(imported)


async def _stored(store: Store, conversation_id: str) -> ConversationRecord | None:
    try:
        return await store.read_record(conversation_id)
    except UnknownConversation:
        return None
