"""A list of what was said, which is searched text by text: for a store that keeps everything in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import mul

from ...states.context import Context
from ...states.dialogue import said_texts
from ...states.events import Event
from ...states.step import LogEntry
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope
from .vectors import unit_vector
from .words import Keyword, Phrase, keywords_of, words_of

MAX_RECENT = 200
"""How many of the texts of the last minutes are returned: more than people say in that time."""


@dataclass(eq=False)
class _Listed:
    """A text, its number, its words, and its vectors by their spaces."""

    number: int
    owner: str | None
    found: FoundText
    words: list[str]
    vectors: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def is_in(self, scope: MemoryScope) -> bool:
        """Whether the text may be found."""
        is_own = self.found.conversation_id == scope.conversation_id
        if is_own and self.found.turn >= scope.turn:
            return False
        return is_own if scope.owner is None else self.owner == scope.owner

    def is_within(self, since: datetime | None, until: datetime | None) -> bool:
        """Whether the text was said between these moments."""
        return (since is None or self.found.at >= since) and (until is None or self.found.at <= until)


@dataclass(eq=False)
class _Log:
    """What of a log says which texts its next step adds."""

    context: Context = field(default_factory=Context)
    events: dict[int, Event] = field(default_factory=dict)


class TextList:
    """What a store needs to fill the port `SearchableStore`: it calls `add` with each step, `remove` when it deletes a
    conversation, and the others from its methods of the same names. Each of them looks at every text."""

    def __init__(self) -> None:
        self._texts: dict[int, _Listed] = {}
        self._logs: dict[str, _Log] = {}
        self._count = 0

    def add(self, conversation_id: str, owner: str | None, entry: LogEntry) -> None:
        """List what a step adds. The steps of a conversation are added in order."""
        log = self._logs.setdefault(conversation_id, _Log())
        log.context = log.context.after(entry.event)
        for said in said_texts(entry, log.context, log.events.get):
            self._count += 1
            found = FoundText(conversation_id, said.turn, said.at, said.role, said.text)
            self._texts[self._count] = _Listed(self._count, owner, found, words_of(said.text))
        log.events[entry.seq] = entry.event

    def remove(self, conversation_id: str) -> None:
        """Forget the texts of a conversation."""
        self._logs.pop(conversation_id, None)
        self._texts = {
            number: text for number, text in self._texts.items() if text.found.conversation_id != conversation_id
        }

    def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
        """Return the texts that hold keywords of the query: those that hold most of them first, then the newest."""
        keywords = keywords_of(query.keywords)
        scored = [
            (sum(holds(text.words, keyword) for keyword in keywords), text)
            for text in self._texts.values()
            if text.is_in(query.scope) and text.is_within(query.since, query.until)
        ]
        hits = sorted(((score, text) for score, text in scored if score), key=lambda hit: (-hit[0], -hit[1].number))
        return _different((text for _, text in hits), query.limit)

    def recent(self, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
        """Return the texts that were said at `since` or later, oldest first."""
        texts = [text for text in self._texts.values() if text.is_in(scope) and text.is_within(since, None)]
        newest = sorted(texts, key=lambda text: (text.found.at, text.number))[-MAX_RECENT:]
        return _different(newest, MAX_RECENT)

    def without_vectors(self, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
        """Return texts that have no vector in this space, the newest first, each with its number."""
        texts = [text for text in self._texts.values() if text.is_in(scope) and space not in text.vectors]
        texts.sort(key=lambda text: (text.found.at, text.number), reverse=True)
        return tuple((text.number, text.found.text) for text in texts[: max(limit, 0)])

    def keep_vectors(self, space: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors of these texts. Raises `InvalidInput`; then none is kept."""
        units = {number: unit_vector(vector) for number, vector in vectors.items()}
        for number in units.keys() & self._texts.keys():
            self._texts[number].vectors[space] = units[number]

    def nearest(
        self,
        scope: MemoryScope,
        space: str,
        vector: Sequence[float],
        since: datetime | None,
        until: datetime | None,
        limit: int,
    ) -> tuple[FoundText, ...]:
        """Return the texts whose vectors have the smallest angle to `vector`, the nearest first. Raises
        `InvalidInput`."""
        wanted = unit_vector(vector)
        texts = [
            text
            for text in self._texts.values()
            if text.is_in(scope) and text.is_within(since, until) and len(text.vectors.get(space, ())) == len(wanted)
        ]
        texts.sort(key=lambda text: sum(map(mul, text.vectors[space], wanted)), reverse=True)
        return _different(texts, limit)


def holds(words: Sequence[str], keyword: Keyword) -> bool:
    """Whether a text with these words holds all phrases of a keyword. `Pure.`"""
    return all(any(_stands_at(start, words, phrase) for start in range(len(words))) for phrase in keyword)


def _stands_at(start: int, words: Sequence[str], phrase: Phrase) -> bool:
    end = start + len(phrase.words) - 1
    if end >= len(words) or tuple(words[start:end]) != phrase.words[:-1]:
        return False
    last = words[end]
    return last.startswith(phrase.beginnings) if phrase.beginnings else last == phrase.words[-1]


def _different(texts: Iterable[_Listed], limit: int) -> tuple[FoundText, ...]:
    """Return the texts, those that a fork has in common with its original once."""
    found = {(text.found.at, text.found.role, text.found.text): text.found for text in reversed([*texts])}
    return tuple(islice(reversed(found.values()), max(0, min(limit, len(found)))))
