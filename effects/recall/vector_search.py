"""Finds texts that mean the same as a query in other words, by the vectors of an embedding function.

A text gets its vector before a search, or afterwards in the background if there are many. A search never waits long for
that: it finds what has a vector by then. Vectors of different functions, and of different dimensions, are kept in
spaces of their own and never compared.
"""

from __future__ import annotations

import asyncio

from ...states.values.acts import FoundText, MemoryScope
from .embedding import Embedding, Vector
from .moments import Bounds
from .parts import STORE_SECONDS, or_else, within
from .port import Memory

BATCH = 64
"""How many texts are embedded in one call of the function: as many as most services take."""

SHARE_BEFORE_SEARCH = 0.5
"""The share of a search's time that texts without vectors may take first."""

MAX_BATCHES = 200
"""How many batches follow one search in the background. What is left then is embedded after the next searches."""


class VectorSearch:
    """Searches the vectors of a memory, and adds those that are missing. Close it before the memory is closed."""

    def __init__(self, memory: Memory, embedding: Embedding) -> None:
        self._memory = memory
        self._embedding = embedding
        self._indexing: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def search(self, scope: MemoryScope, query: str, bounds: Bounds, limit: int) -> tuple[FoundText, ...]:
        """Return the texts that are nearest to the query, the nearest first. Raises `PartFailed`, in particular if
        there is no result within the seconds of the embedding."""
        return await within(self._embedding.seconds, self._search(scope, query, bounds, limit))

    async def _search(self, scope: MemoryScope, query: str, bounds: Bounds, limit: int) -> tuple[FoundText, ...]:
        (vector,) = await self._embedding.vectors([query])
        space = f"{self._embedding.name}/{len(vector)}"
        seconds = self._embedding.seconds * SHARE_BEFORE_SEARCH
        if await or_else(True, "new vectors", within(seconds, self._add_vectors(scope, space))):
            self._add_in_background(scope, space)
        return await self._memory.nearest(scope, space, vector, bounds.since, bounds.until, limit)

    async def close(self) -> None:
        """Stop adding vectors."""
        tasks = list(self._indexing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- texts without vectors

    async def _add_vectors(self, scope: MemoryScope, space: str) -> bool:
        """Embed one batch of texts, and return whether there may be more. Raises `PartFailed`."""
        missing = dict(await self._memory.without_vectors(scope, space, BATCH))
        if not missing:
            return False
        vectors = await self._embedding.vectors(list(missing.values()))
        if space != f"{self._embedding.name}/{len(vectors[0])}":
            return False  # the function has changed since the query was embedded
        kept: dict[int, Vector] = dict(zip(missing, vectors, strict=True))
        await within(STORE_SECONDS, self._memory.keep_vectors(space, kept))
        return len(missing) == BATCH

    def _add_in_background(self, scope: MemoryScope, space: str) -> None:
        """Embed what is left, unless that goes on already for the same owner."""
        whose = ("conversation", scope.conversation_id) if scope.owner is None else ("owner", scope.owner)
        if whose not in self._indexing:
            task = asyncio.ensure_future(self._add_all(scope, space))
            self._indexing[whose] = task
            task.add_done_callback(lambda _: self._indexing.pop(whose))

    async def _add_all(self, scope: MemoryScope, space: str) -> None:
        for _ in range(MAX_BATCHES):
            batch = within(2 * self._embedding.seconds, self._add_vectors(scope, space))
            if not await or_else(False, "new vectors", batch):
                return
