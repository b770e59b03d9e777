"""The memory of an engine: what its store knows of older conversations, and how it is searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...effects.clock import Clock
from ...effects.context import EffectContext
from ...effects.model.performers.model_caller import ModelCaller
from ...effects.recall.document_reader import DocumentReader
from ...effects.recall.embedding import Embedding
from ...effects.recall.enrichment import Enrichment
from ...effects.recall.port import Memory
from ...effects.recall.recall_performer import RecallPerformer
from ...effects.recall.recent_dialogue import RecentDialogue
from ...effects.recall.scope import scope_of
from ...effects.recall.search import ConversationSearch
from ...effects.recall.vector_search import VectorSearch
from ...persistence.ports import Store
from ...states.errors import ConfigurationError
from ...states.events import RecentText
from ...states.policy.policy import Recent
from ...states.values.memory import FoundText, MemoryQuery, MemoryScope
from ..bootstrap import implements
from .providers import Providers

if TYPE_CHECKING:
    from ..settings import Settings

NOT_SEARCHABLE = "The store of this engine cannot search older conversations."


class StoreMemory:
    """The port `Memory`, filled by a store that is opened later. Its methods raise `ConfigurationError` if the store
    cannot search."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    @property
    def is_searchable(self) -> bool:
        """Whether the store can search. Raises `EngineClosed`."""
        return implements(self._store(), Memory)

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().search(query)

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().recent(scope, since)

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """See `Memory`."""
        return await self._searchable().without_vectors(scope, space, limit)

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """See `Memory`."""
        await self._searchable().keep_vectors(space, vectors)

    async def nearest(
        self,
        scope: MemoryScope,
        space: str,
        vector: Sequence[float],
        since: datetime | None,
        until: datetime | None,
        limit: int,
    ) -> tuple[FoundText, ...]:
        """See `Memory`."""
        return await self._searchable().nearest(scope, space, vector, since, until, limit)

    def _searchable(self) -> Memory:
        store: Any = self._store()
        if not implements(store, Memory):
            raise ConfigurationError(NOT_SEARCHABLE)
        memory: Memory = store
        return memory


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
