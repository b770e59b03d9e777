"""Makes the loops of an engine: of conversations that were just created, and of those that are loaded."""

from __future__ import annotations

from functools import partial

from ...persistence.ports import LoadedConversation, Log, Store
from ...persistence.records.details import Details
from ...persistence.records.summary import Summary
from ...states.context import Context
from ...states.events import Opened
from ...states.log import LogEntry
from ...states.step import Step
from ..loop import Loop
from ..projections.history import ConversationHistory
from ..projections.newest_profile import profile_of_last_turn
from ..projections.projection import ConversationProjection, ReadEntries
from ..services.loop_services import LoopServices


class LoopFactory:
    """Makes loops that share the services of their engine."""

    def __init__(self, services: LoopServices) -> None:
        self._services = services

    def created(self, store: Store, conversation_id: str, log: Log, opened: Opened, step: Step) -> Loop:
        """Return the loop of a conversation whose first step was just stored."""
        read = partial(store.entries, conversation_id)
        entries = (LogEntry.of(opened, step),)
        self._services.tree.open(new_summary(conversation_id, opened, step))
        projection = ConversationProjection(step.state, Context().after(opened), read, entries)
        return self._loop(conversation_id, projection, log, read)

    async def loaded(self, store: Store, conversation_id: str, loaded: LoadedConversation) -> Loop:
        """Return the loop of a conversation whose head was read from the store. Raises `StoreError`."""
        read = partial(store.entries, conversation_id)
        last_profile = await profile_of_last_turn(loaded.state, loaded.context, read)
        projection = ConversationProjection(loaded.state, loaded.context, read, last_profile=last_profile)
        return self._loop(conversation_id, projection, loaded.log, read)

    def _loop(self, conversation_id: str, projection: ConversationProjection, log: Log, read: ReadEntries) -> Loop:
        return Loop(conversation_id, projection, log, ConversationHistory(projection, read), self._services)


def new_summary(conversation_id: str, opened: Opened, step: Step) -> Summary:
    """Return what a list shows of a conversation that has just begun. `Pure.`"""
    details = Details().after(opened)
    return Summary(
        id=conversation_id,
        state=step.state.type,
        busy=step.state.ends_with_process,
        updated_at=opened.at,
        owner=details.owner,
        title=details.title,
        metadata=details.metadata,
        role=details.role,
        parent=details.parent,
        works_for=details.works_for,
        wakes_at=step.state.book.wake,
        seq=step.state.book.seq,
    )
