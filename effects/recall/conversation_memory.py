"""What a tool may find in older conversations of the owner whose call it serves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...states.values.memory import FoundText
from ..context import EffectContext
from .moments import Bounds
from .scope import scope_of
from .search import ConversationSearch
from .search_terms import read_keywords


class ConversationMemory:
    """The conversations of one owner, without what the model reads anyway in the turn under way."""

    def __init__(self, search: ConversationSearch, context: EffectContext) -> None:
        self._search = search
        self._context = context

    async def search(
        self, keywords: Sequence[str], since: datetime | None = None, until: datetime | None = None
    ) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords, the best first, as many as the setting `memory_enrichment_max_results`
        allows. `since` and `until`, with a time zone, bound the moments at which they were said; both are included.

        Raises `PartFailed` if they cannot be searched, and `StoreError` if the conversation cannot be read.
        """
        scope = scope_of(self._context, await self._context.transcript())
        known = read_keywords(list(keywords))
        return await self._search.find(scope, known, Bounds(since, until), " ".join(known))
