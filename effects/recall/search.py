"""Searches older conversations by keywords, and by vectors where the application has an embedding function.

A text gets its vector before a search, or afterwards in the background if there are many. A search never waits long
for that: it finds what has a vector by then. Vectors of different functions, and of different dimensions, are kept in
spaces of their own and never compared. Vectors that are wrong would spoil every later search, so an answer of the
embedding function is taken only if all of it can be right: one vector for each text, all of the same number of
dimensions, made of finite numbers.

A search is limited to the texts of the owner of the conversation, and leaves out those that a request holds anyway.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from ...states.errors import StoreError, TurnwiseError
from ...states.policy import Recent
from ...states.transcript import Transcript
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..application_functions import innermost
from ..context import EffectContext, Redact, unchanged
from ..text import cut_middle, in_thread_if_long
from .ports import STORE_SECONDS, Embed, LeftOut, Memory, PartFailed, call_application, or_else, within
from .terms import Bounds, read_keywords


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

    async def stop(self) -> None:
        """Stop what runs in the background. To be called before the memory is closed."""
        if self._vectors is not None:
            await self._vectors.stop()


def _different(ranked: Iterable[FoundText], known: Iterable[str], redact: Redact) -> Iterable[FoundText]:
    """Yield the texts after `redact`, each once and without those that are `known`. They are redacted before anything
    is cut from them, since half of a secret is not recognised."""
    seen = set(known)
    for found in ranked:
        text = redact(found.text)
        if text not in seen:
            seen.add(text)
            yield found if text == found.text else replace(found, text=text)


_DAMPING = 60
"""The constant of the paper. The larger it is, the less the first ranks count."""


def fuse(*rankings: Sequence[FoundText]) -> tuple[FoundText, ...]:
    """The texts of all rankings, each once, the best first. Of texts with the same score, that of the earlier ranking
    comes first.

    The scores of searches by keywords and by vectors cannot be compared, but their ranks can. Reciprocal rank fusion
    (Cormack, Clarke and Büttcher, SIGIR 2009) adds up 1 / (60 + rank) over the searches that found a text. `Pure.`
    """
    scores: dict[FoundText, float] = {}
    for ranking in rankings:
        for rank, found in enumerate(dict.fromkeys(ranking), 1):
            scores[found] = scores.get(found, 0.0) + 1 / (_DAMPING + rank)
    return tuple(sorted(scores, key=lambda found: -scores[found]))


BATCH = 64
"""How many texts are embedded in one call of the function: as many as most services take."""

SHARE_BEFORE_SEARCH = 0.5
"""The share of a search's time that texts without vectors may take first."""

_MAX_BATCHES = 200
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
        return await self._memory.nearest(VectorQuery(scope, space, vector, bounds.since, bounds.until, limit))

    async def stop(self) -> None:
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
        for _ in range(_MAX_BATCHES):
            batch = within(2 * self._embedding.seconds, self._add_vectors(scope, space))
            if not await or_else(False, "new vectors", batch):
                return


MAX_BYTES_OF_TEXT = 8_000
"""Bytes of each text that are embedded. Most models take in about 2,000 tokens."""

MAX_DIMENSIONS = 16_384
"""The longest vector that is taken: four times as long as those of the largest models."""

Vector = tuple[float, ...]


class Embedding:
    """Embeds texts, for at most `seconds` at a time. `name` identifies what makes the vectors."""

    def __init__(self, embed: Embed, seconds: float) -> None:
        self._embed = embed
        self.seconds = seconds
        self.name: str = _name_of(embed)

    async def vectors(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a vector for each text. Raises `PartFailed`."""
        shortened = [cut_middle(text, MAX_BYTES_OF_TEXT) for text in texts]
        return _checked(await call_application(self.seconds, "embedding", self._embed, shortened), len(texts))


def _name_of(embed: Any) -> str:
    name = getattr(embed, "name", None)
    if isinstance(name, str) and name.strip():
        return name
    called = innermost(embed)
    named = called if hasattr(called, "__qualname__") else type(called)
    return f"{named.__module__}.{named.__qualname__}"


def _checked(value: object, count: int) -> tuple[Vector, ...]:
    try:
        vectors = tuple(map(_vector, islice(value, count + 1))) if isinstance(value, Iterable) else ()
    except Exception as error:
        raise PartFailed("it returned something that is no vector") from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise PartFailed("it returned another number of vectors, or vectors of different dimensions")
    return vectors


def _vector(value: Any) -> Vector:
    """A vector as numbers of Python, whatever library it comes from."""
    if isinstance(value, str | bytes) or not 0 < len(value) <= MAX_DIMENSIONS:
        raise ValueError("no vector")
    vector = tuple(map(float, value))
    if not all(map(math.isfinite, vector)) or not any(vector):
        raise ValueError("a vector without a direction")
    return vector


FAILED = "Older conversations cannot be searched now."


class ConversationMemory:
    """The conversations of one owner, without what the model reads anyway in the turn under way."""

    def __init__(self, search: ConversationSearch, context: EffectContext) -> None:
        self._search = search
        self._context = context

    async def search(
        self, keywords: Sequence[str], since: datetime | None = None, until: datetime | None = None
    ) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords, the best first, as many as the setting `memory_enrichment_max_results`
        allows. One text may hold several keywords, with commas between them. `since` and `until` bound the moments at
        which they were said; both are included, and in UTC if they have no time zone. What the rules of this
        conversation replace is replaced in the texts of others, too. Raises `StoreError` if older conversations cannot
        be searched now.
        """
        scope = scope_of(self._context, await self._context.transcript())
        known = read_keywords(keywords if isinstance(keywords, str) else list(keywords))
        try:
            bounds = Bounds(_in_utc(since), _in_utc(until))
            return await self._search.find(scope, known, bounds, " ".join(known), redact=self._context.redact)
        except PartFailed as failed:
            cause = failed.__cause__
            raise StoreError(cause.sentence if isinstance(cause, TurnwiseError) else FAILED) from None


def _in_utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def scope_of(context: EffectContext, transcript: Transcript) -> MemoryScope:
    """The texts of the owner, without those of this conversation that a request of this turn holds: under `Recent` only
    the turn itself, otherwise every turn whose messages were not condensed. `Pure.`"""
    turn = transcript.first_try(context.turn)
    if not isinstance(context.policy.dialogue, Recent):
        turn = min([turn, *(oldest.turn for oldest in transcript.current[:1])])
    return MemoryScope(context.conversation_id, context.context.owner, turn)


def is_empty(scope: MemoryScope, transcript: Transcript) -> bool:
    """Whether nothing can be found: without an owner only this conversation is searched, and a request holds all of it.
    `Pure.`"""
    return scope.owner is None and all(oldest.turn >= scope.turn for oldest in transcript.messages[:1])
