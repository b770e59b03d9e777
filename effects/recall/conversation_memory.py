"""What a tool may find in older conversations of the owner whose call it serves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ...states.errors import StoreError, TurnwiseError
from ...states.values.acts import FoundText
from ..context import EffectContext
from .moments import Bounds
from .parts import PartFailed
from .scope import scope_of
from .search import ConversationSearch
from .search_terms import read_keywords

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
