"""Imports conversations that were read from an export.

All of them are stored in one transaction, or none. Nothing of an imported conversation goes on by itself, whatever its
log says: a file may come from anybody, and if it comes from a database that is still in use, the original goes on
there. So a conversation that was under way gets one step more, by which its turn fails as after too many crashes. Calls
that were running are told to be in doubt, those that had not begun did not run; questions, approvals, sub-agents and
timers are waited for no longer; messages that waited keep waiting until somebody writes or tries again. A schedule is
taken away by another step. What was to be delivered is not part of an export, so nothing is said to anybody.

These steps follow from the log alone, so an export that is imported twice is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ...states.context import Context
from ...states.errors import Refused, UnknownConversation
from ...states.events import Event, Opened, Resumed, ScheduleChanged
from ...states.machine import begin, transition
from ...states.states import AnyState, Busy
from ..errors import Damaged, StoreConflict
from ..ports import Store
from ..records.codec import decode_event, decode_state, encode, from_microseconds
from ..records.conversation_record import ConversationRecord
from ..records.digests import GENESIS


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


async def import_records(store: Store, records: Iterable[ConversationRecord]) -> tuple[Imported, ...]:
    """Store conversations that `read_export` returned, all of them or none. One that is stored already, equal step by
    step, is left as it is. Nothing of the new ones goes on by itself. Raises `StoreConflict` if another conversation
    has the same id, and `Damaged` for a state that does not belong to its steps."""
    imported: list[Imported] = []
    new: dict[str, ConversationRecord] = {}
    for record in records:
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
    await store.write_records(new.values())
    return tuple(imported)


def at_rest(record: ConversationRecord) -> ConversationRecord:
    """Return the conversation with the steps by which everything ends that is under way in it, and with nothing to be
    delivered. Raises `Damaged` if its state does not belong to its steps. `Pure.`"""
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
