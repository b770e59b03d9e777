"""Searches older conversations by keywords, and by vectors where the application has an embedding function."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from ...states.values.acts import FoundText, MemoryQuery, MemoryScope
from ..long_texts import in_thread_if_long
from ..redact import Redact, unchanged
from .fusion import fuse
from .moments import Bounds
from .parts import STORE_SECONDS, LeftOut, or_else, within
from .port import Memory
from .vector_search import VectorSearch


class ConversationSearch:
    """Searches a memory for at most `limit` texts. Without `vectors`, or if they fail, the keywords alone decide."""

    def __init__(self, memory: Memory, limit: int, vectors: VectorSearch | None = None) -> None:
        self._memory = memory
        self._limit = limit
        self._vectors = vectors

    async def find(
        self,
        scope: MemoryScope,
        keywords: Sequence[str],
        bounds: Bounds,
        meaning: str,
        known: Sequence[str] = (),
        redact: Redact = unchanged,
        left_out: LeftOut | None = None,
    ) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords or mean the same as `meaning`, the best first, each once, after `redact`,
        and without those that are `known`. Without keywords nothing is found. What fails beside the keywords is added
        to `left_out`. Raises `PartFailed` if the keywords cannot be searched for."""
        if not keywords:
            return ()
        limit = 2 * self._limit + len(known)  # some texts were said several times
        query = MemoryQuery(scope, tuple(keywords), bounds.since, bounds.until, limit)
        by_vectors = asyncio.ensure_future(self._by_vectors(scope, meaning, bounds, limit, left_out))
        try:
            by_keywords = await within(STORE_SECONDS, self._memory.search(query))
            ranked = fuse(by_keywords, await by_vectors)
        finally:
            by_vectors.cancel()
        different = _different(ranked, known, redact)
        characters = 0 if redact is unchanged else sum(len(found.text) for found in ranked)
        return await in_thread_if_long(characters, lambda: tuple(islice(different, self._limit)))

    async def _by_vectors(
        self, scope: MemoryScope, meaning: str, bounds: Bounds, limit: int, left_out: LeftOut | None
    ) -> tuple[FoundText, ...]:
        if self._vectors is None or not meaning.strip():
            return ()
        return await or_else((), "vectors", self._vectors.search(scope, meaning, bounds, limit), left_out)

    async def close(self) -> None:
        """Stop what runs in the background. To be called before the memory is closed."""
        if self._vectors is not None:
            await self._vectors.close()


def _different(ranked: Iterable[FoundText], known: Iterable[str], redact: Redact) -> Iterable[FoundText]:
    """Yield the texts after `redact`, each once and without those that are `known`. They are redacted before anything
    is cut from them, since half of a secret is not recognised."""
    seen = set(known)
    for found in ranked:
        text = redact(found.text)
        if text not in seen:
            seen.add(text)
            yield found if text == found.text else replace(found, text=text)
