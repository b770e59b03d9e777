"""Recalls what belongs to a turn: the dialogue of the last minutes, older conversations, and documents.

Each part may fail, hang or find nothing. The turn then goes on without that part, so a recall always ends in an answer,
unless the conversation itself cannot be read.
"""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType

from ...states.dialogue import user_text
from ...states.effects import RecallMemory
from ...states.events import MemoryRecalled, RecentText
from ...states.transcript import Transcript
from ...states.values.acts import FoundText, MemoryScope
from ...states.values.messages import Usage
from ..clock import Clock
from ..context import EffectContext
from ..logs import performer_logger
from .document_reader import DocumentReader
from .documents import DocumentQuery
from .enrichment import Enrichment
from .parts import LeftOut, or_else
from .recent_dialogue import RecentDialogue
from .records import write_documents, write_found
from .scope import is_empty, scope_of
from .search import ConversationSearch
from .search_terms import NOTHING

logger = performer_logger("turnwise.memory")


@dataclass(frozen=True)
class _Turn:
    """The turn under way: the user's messages of it, whose texts may be found for it, and whether there may be any; and
    what it goes on without."""

    text: str
    scope: MemoryScope
    has_past: bool
    left_out: LeftOut = field(default_factory=list)

    @classmethod
    def of(cls, context: EffectContext, transcript: Transcript) -> _Turn:
        scope = scope_of(context, transcript)
        text = user_text(transcript.messages, transcript.first_try(context.turn))
        return cls(text, scope, not is_empty(scope, transcript))


@dataclass(frozen=True)
class _Findings:
    """What a search has found, by how many keywords, and what it has used."""

    texts: tuple[FoundText, ...] = ()
    keywords: int = 0
    usage: Usage = field(default_factory=Usage)


class RecallPerformer:
    """Carries out `RecallMemory`. Without `documents` the application has no document source."""

    def __init__(
        self,
        dialogue: RecentDialogue,
        search: ConversationSearch,
        enrichment: Enrichment,
        clock: Clock,
        documents: DocumentReader | None = None,
    ) -> None:
        self._dialogue = dialogue
        self._search = search
        self._enrichment = enrichment
        self._clock = clock
        self._documents = documents

    async def __call__(self, effect: RecallMemory, context: EffectContext) -> MemoryRecalled:
        """Look for all parts at once, and answer with what was found."""
        turn = _Turn.of(context, await context.transcript())
        async with asyncio.TaskGroup() as parts:
            recent = parts.create_task(self._recent(effect, context, turn))
            documents = parts.create_task(self._read_documents(effect, context, turn))
            search = parts.create_task(self._find(effect, context, turn, recent))
        found, texts, chunks = search.result(), recent.result(), documents.result()
        counts = (found.keywords, len(found.texts), len(texts), len(chunks))
        logger.info("keywords: %d, found: %d, recent: %d, documents: %d", *counts)
        return MemoryRecalled(
            effect_id=effect.effect_id,
            at=self._clock.now(),
            block=write_found(found.texts),
            recent=texts,
            documents=write_documents(chunks),
            usage=found.usage,
            left_out=tuple(turn.left_out),
        )

    # --- older conversations

    async def _find(
        self, effect: RecallMemory, context: EffectContext, turn: _Turn, recent: asyncio.Task[tuple[RecentText, ...]]
    ) -> _Findings:
        """Search for what a model names, without the texts that are among the recent ones."""
        if not (effect.search and turn.has_past and turn.text):
            return _Findings()
        asked = self._enrichment.search_terms(turn.text, context)
        terms, usage = await or_else((NOTHING, Usage()), "search terms", asked, turn.left_out)
        known = [text.text for text in await recent]
        scope, keywords, bounds = turn.scope, terms.keywords, terms.bounds
        search = self._search.find(scope, keywords, bounds, turn.text, known, context.redact, turn.left_out)
        found = await or_else((), "older conversations", search, turn.left_out)
        return _Findings(found, len(terms.keywords), usage)

    # --- the dialogue of the last minutes

    async def _recent(self, effect: RecallMemory, context: EffectContext, turn: _Turn) -> tuple[RecentText, ...]:
        if effect.recent is None or not turn.has_past:
            return ()
        return await self._dialogue.look_up(turn.scope, effect.recent, context.redact, turn.left_out)

    # --- documents

    async def _read_documents(self, effect: RecallMemory, context: EffectContext, turn: _Turn) -> tuple[str, ...]:
        if not effect.documents or self._documents is None:
            return ()
        metadata = MappingProxyType(deepcopy(context.context.metadata))
        query = DocumentQuery(turn.text, context.context.owner, context.conversation_id, metadata)
        return await or_else((), "documents", self._documents.read(query, context.redact), turn.left_out)
