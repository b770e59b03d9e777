"""Takes conversations in that were read from an export.

All of them are stored in one transaction, or none. One that was in the middle of a turn comes in as it was, and the
engine that opens the database next takes it up as after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from ...states.errors import UnknownConversation
from ..errors import StoreConflict
from ..sqlite.conversation_record import ConversationRecord, add_whole, read_whole
from ..sqlite.store import Store


@dataclass(frozen=True)
class Imported:
    """A conversation of an export, with so many steps. `there` tells that it was stored before, equal step by step."""

    conversation_id: str
    steps: int
    there: bool


async def keep(store: Store, wholes: Iterable[ConversationRecord]) -> tuple[Imported, ...]:
    """Store conversations that `read_export` gave, all or none. One that is there already, equal step by step, is left
    as it is. Raises `StoreConflict` for one whose id another conversation has."""
    return await store.database.write(lambda connection: tuple(map(partial(_keep, connection), wholes)))


def _keep(connection: Connection, whole: ConversationRecord) -> Imported:
    try:
        there = read_whole(connection, whole.id)
    except UnknownConversation:
        add_whole(connection, whole)
        return Imported(whole.id, len(whole.steps), there=False)
    if there.steps != whole.steps:
        raise StoreConflict(f"There is already another conversation with the id {whole.id}; nothing was imported.")
    return Imported(whole.id, len(whole.steps), there=True)
