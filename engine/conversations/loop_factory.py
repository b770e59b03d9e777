"""Makes the loops of an engine: of conversations that were just created, and of those that are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from ...effects.context import EffectLinks
from ...persistence.ports import LoadedConversation, Log, Store
from ...persistence.records import StoredEntry
from ...persistence.summaries import Details, summary_in_state
from ...states.context import Context
from ...states.events import Opened
from ...states.step import LogEntry, Step
from ..loop import Loop
from ..projections.history import ConversationHistory
from ..projections.newest_profile import profile_of_last_turn
from ..projections.projection import ConversationProjection, ReadEntries
from ..recovery import links_of
from ..services.loop_services import LoopServices
from .shared_contexts import SharedContexts


class StoredEntries:
    """Reads the entries of one log: a `ReadEntries`."""

    __slots__ = ("_conversation_id", "_store")

    def __init__(self, store: Store, conversation_id: str) -> None:
        self._store = store
        self._conversation_id = conversation_id

    async def __call__(self, after: int = 0, up_to: int | None = None) -> Sequence[StoredEntry]:
        """Read the entries that follow the step `after`, up to and including the step `up_to`."""
        return await self._store.entries(self._conversation_id, after, up_to)


class LoopFactory:
    """Makes loops that share the services of their engine."""

    def __init__(self, services: LoopServices) -> None:
        self._services = services
        self._contexts = SharedContexts()

    def created(self, store: Store, conversation_id: str, log: Log, opened: Opened, step: Step) -> Loop:
        """Return the loop of a conversation whose first step was just stored."""
        read = StoredEntries(store, conversation_id)
        entries = (LogEntry.of(opened, step),)
        if self._services.tree.is_watched:
            details = Details().after(opened)
            self._services.tree.open(summary_in_state(conversation_id, step.state, opened.at, details))
        projection = ConversationProjection(step.state, self._contexts.shared(Context().after(opened)), read, entries)
        return self._loop(conversation_id, projection, log, read, EffectLinks())

    async def loaded(self, store: Store, conversation_id: str, loaded: LoadedConversation) -> Loop:
        """Return the loop of a conversation whose head was read from the store. Raises `StoreError`."""
        read = StoredEntries(store, conversation_id)
        last_profile = await profile_of_last_turn(loaded.state, loaded.context, read)
        context = self._contexts.shared(loaded.context)
        projection = ConversationProjection(loaded.state, context, read, last_profile=last_profile)
        return self._loop(conversation_id, projection, loaded.log, read, await links_of(loaded.state, read))

    def _loop(
        self,
        conversation_id: str,
        projection: ConversationProjection,
        log: Log,
        read: ReadEntries,
        links: EffectLinks,
    ) -> Loop:
        return Loop(conversation_id, projection, log, ConversationHistory(projection, read), self._services, links)
