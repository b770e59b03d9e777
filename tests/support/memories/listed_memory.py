"""A memory of older conversations without a store, for tests of those that search one."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from datetime import datetime

from turnwise.states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery


class ListedMemory:
    """The texts of a list, each with the owner of its conversation. A keyword finds the texts that contain it."""

    def __init__(self, *texts: FoundText, owners: Mapping[str, str] | None = None) -> None:
        self.texts = list(texts)
        self.owners = dict(owners or {})
        self.vectors: dict[tuple[str, int], Sequence[float]] = {}
        self.queries: list[MemoryQuery] = []

    async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts with the most keywords first."""
        self.queries.append(query)
        hits = {
            one: sum(word.casefold() in one.text.casefold() for word in query.keywords)
            for one in self._within(query.scope, query.since, query.until)
        }
        return tuple(sorted((one for one in hits if hits[one]), key=lambda one: -hits[one]))[: query.limit]

    async def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts in the order in which they were said."""
        return tuple(sorted(self._within(scope, since, None), key=lambda one: one.at))

    async def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts with their places in the list."""
        within = self._within(scope, None, None)
        missing = [
            place for place, one in enumerate(self.texts) if one in within and (space, place) not in self.vectors
        ]
        return tuple((place, self.texts[place].text) for place in missing[::-1][:limit])

    async def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors under the places of their texts."""
        self.vectors.update({(space, place): vector for place, vector in vectors.items()})

    async def nearest(self, query: VectorQuery) -> tuple[FoundText, ...]:
        """Return the texts by the cosine of the angle between their vectors and this one."""
        within = self._within(query.scope, query.since, query.until)
        cosines = {
            self.texts[place]: sum(map(operator.mul, kept, query.vector)) / math.hypot(*kept)
            for (of, place), kept in self.vectors.items()
            if of == query.space and self.texts[place] in within
        }
        return tuple(sorted(cosines, key=lambda one: -cosines[one]))[: query.limit]

    def _within(self, scope: MemoryScope, since: datetime | None, until: datetime | None) -> list[FoundText]:
        return [
            one
            for one in self.texts
            if self._belongs(one, scope) and (since is None or one.at >= since) and (until is None or one.at <= until)
        ]

    def _belongs(self, one: FoundText, scope: MemoryScope) -> bool:
        if one.conversation_id == scope.conversation_id:
            return one.turn < scope.turn
        return scope.owner is not None and self.owners.get(one.conversation_id) == scope.owner
