"""Makes the loops of an engine: of conversations that were just created, and of those that are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...effects.clock import Clock
from ...effects.redaction.redaction import Redaction
from ...persistence.ports import LoadedConversation, Log, Store
from ...states.context import Context
from ...states.events import Opened
from ...states.log import LogEntry
from ...states.step import Step
from ..choices.adoption import Adoption
from ..loop import Loop
from ..outbox import OutboxTargets
from ..ports import Dispatcher, LoopOwner, Observer
from ..projections.history import ConversationHistory
from ..projections.newest_profile import profile_of_last_turn
from ..projections.projection import ConversationProjection, ReadEntries


@dataclass(frozen=True)
class LoopFactory:
    """What the loops of one engine have in common."""

    dispatcher: Dispatcher
    outbox: OutboxTargets
    clock: Clock
    adoption: Adoption
    owner: LoopOwner
    observers: Sequence[Observer]
    kept_updates: int
    redaction: Redaction | None

    def created(self, store: Store, conversation_id: str, log: Log, opened: Opened, step: Step) -> Loop:
        """Return the loop of a conversation whose first step was just stored."""
        read = partial(store.entries, conversation_id)
        entries = (LogEntry.of(opened, step),)
        projection = ConversationProjection(step.state, Context().after(opened), read, entries)
        return self._loop(conversation_id, projection, log, read)

    async def loaded(self, store: Store, conversation_id: str, loaded: LoadedConversation) -> Loop:
        """Return the loop of a conversation whose head was read from the store. Raises `StoreError`."""
        read = partial(store.entries, conversation_id)
        last_profile = await profile_of_last_turn(loaded.state, loaded.context, read)
        projection = ConversationProjection(loaded.state, loaded.context, read, last_profile=last_profile)
        return self._loop(conversation_id, projection, loaded.log, read)

    def _loop(self, conversation_id: str, projection: ConversationProjection, log: Log, read: ReadEntries) -> Loop:
        return Loop(
            conversation_id,
            projection,
            log,
            ConversationHistory(projection, read),
            self.dispatcher,
            self.outbox,
            self.clock,
            self.adoption,
            self.owner,
            self.observers,
            self.kept_updates,
        )
