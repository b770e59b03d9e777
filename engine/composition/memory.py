"""What an engine recalls for its conversations, put together from its store, its settings and its providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...effects.context import EffectContext
from ...effects.model.performers.asking import ModelCaller
from ...effects.recall.performer import DocumentReader, Enrichment, RecallPerformer, RecentDialogue
from ...effects.recall.search import ConversationSearch, Embedding, VectorSearch, scope_of
from ...persistence.ports import Store
from ...states.events import RecentText
from ...states.policy import Recent
from .providers import Providers
from .store_memory import StoreMemory

if TYPE_CHECKING:
    from ..settings import Settings


class EngineMemory:
    """What an engine recalls for its conversations. Close it before the store is closed."""

    def __init__(self, store: Callable[[], Store], settings: Settings, providers: Providers, clock: Clock) -> None:
        self.store = StoreMemory(store)
        self._settings = settings
        self._dialogue = RecentDialogue(self.store, clock)
        self._clock = clock
        seconds = settings.llm_embed_timeout_sec
        embedding = None if providers.embed is None else Embedding(providers.embed, seconds)
        vectors = None if embedding is None else VectorSearch(self.store, embedding)
        self.search = ConversationSearch(self.store, settings.memory_enrichment_max_results, vectors)
        documents = providers.documents
        self._documents = None if documents is None else DocumentReader(documents, settings.llm_tools_timeout_sec)

    def performer(self, asking: ModelCaller) -> RecallPerformer:
        """Return the performer of `RecallMemory`, which asks models by `asking`."""
        enrichment = Enrichment(asking, self._clock, self._settings.llm_tools_model)
        return RecallPerformer(self._dialogue, self.search, enrichment, self._clock, self._documents)

    async def recent(self, context: EffectContext) -> tuple[RecentText, ...]:
        """Return the dialogue of the last minutes, in a conversation whose requests look back only some minutes."""
        dialogue = context.policy.dialogue
        if not isinstance(dialogue, Recent) or not self.store.is_searchable:
            return ()
        scope = scope_of(context, await context.transcript())
        return await self._dialogue.look_up(scope, dialogue.seconds, context.redact)

    async def close(self) -> None:
        """Stop what runs in the background."""
        await self.search.close()
