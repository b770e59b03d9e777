"""The port by which older conversations are searched, filled by the store of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...effects.recall.ports import Memory
from ...persistence.ports import Store
from ...states.errors import ConfigurationError
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope
from ..bootstrap import implements

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
