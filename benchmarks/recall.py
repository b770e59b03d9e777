"""What it costs to find again what was said, among 100,000 stored messages, beside a plain LIKE over the same rows.

    python benchmarks/recall.py            all parts, two minutes or so
    python benchmarks/recall.py --quick    a few messages, to see that it works; its figures say little

The messages are drawn from 20,000 made-up words, of which a few are frequent and most are rare, as in any language. In
the first round they belong to one owner, in the second to a hundred. A query has three keywords, as a model names them
for a message: two of the middle frequencies and a rare one; it wants the best ten. LIKE has to read every message that
the owner has, and returns the newest ten, as it knows no best ones. Each query is asked both ways, one after the other,
and of all queries the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from time import perf_counter

from figures import Figure, at_most

from turnwise.persistence import GENESIS, ConversationRecord, SqliteStore, encode
from turnwise.states import LlmResponse, UserMessage
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing.store_contract import NOON, Story

WORDS = 20_000
WORDS_OF_A_MESSAGE = 30
TURNS = 50
"""Turns of a conversation."""

HALFWAY = NOON + timedelta(minutes=500)
"""The moment at which half of the messages were said."""

LIKE = """
SELECT conversations.id, events.turn, events.payload FROM events JOIN conversations ON key = conversation
WHERE owner = ? AND type IN ('user_message', 'llm_response') AND at BETWEEN ? AND ?
AND (payload LIKE ? OR payload LIKE ? OR payload LIKE ?) ORDER BY at DESC LIMIT 10
"""


@dataclass(frozen=True)
class Sizes:
    """How much is stored, and how often it is asked for."""

    messages: int = 100_000
    queries: int = 200


QUICK = Sizes(messages=2_000, queries=10)


class Vocabulary:
    """Made-up words, the first of which are frequent (Zipf's law)."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        syllables = [a + b for a in "bdfghklmnprstvw" for b in "aeiou"]
        self.words = ["".join(chance.choices(syllables, k=chance.randint(2, 4))) for _ in range(WORDS)]
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))

    def message(self) -> str:
        """A text that nobody said before."""
        return " ".join(self._chance.choices(self.words, cum_weights=self._weights, k=WORDS_OF_A_MESSAGE))

    def keywords(self) -> tuple[str, ...]:
        """What a model might look for."""
        ranks = self._chance.randint(100, 1000), self._chance.randint(100, 1000), self._chance.randint(5000, WORDS - 1)
        return tuple(self.words[rank] for rank in ranks)


def records(vocabulary: Vocabulary, messages: int, owners: int) -> Iterator[ConversationRecord]:
    """Conversations with so many messages in all. The steps of all of them are the same, but for the texts."""
    template = Story()
    for _ in range(TURNS):
        template.say().answer()
    for number in range(messages // (2 * TURNS)):
        began = timedelta(minutes=number)
        rows, chain = [], GENESIS
        for event, step in template.steps:
            event = event.replace(at=event.at + began)
            if isinstance(event, UserMessage):
                event = event.replace(text=vocabulary.message())
            elif isinstance(event, LlmResponse):
                event = event.replace(content=vocabulary.message())
            row, head = encode(event, step, chain)
            rows.append(row)
            chain = row.chain
        yield ConversationRecord(f"conversation {number}", rows[0].at, head, tuple(rows), f"owner {number % owners}")


@asynccontextmanager
async def filled(path: Path, sizes: Sizes, owners: int, vocabulary: Vocabulary) -> AsyncIterator[SqliteStore]:
    """A store with all messages, none of which is indexed."""
    store = await SqliteStore.open(path)
    try:
        batch: list[ConversationRecord] = []
        for record in records(vocabulary, sizes.messages, owners):
            batch.append(record)
            if len(batch) == 50:
                await store.write_records(batch)
                batch.clear()
        await store.write_records(batch)
        yield store
    finally:
        await store.close()


def size_of(path: Path) -> int:
    """How many bytes the file holds that are in use."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (pages,), (free,), (size,) = (
            other.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def spread(seconds: Iterable[float]) -> str:
    """How far apart the times lie."""
    ordered = sorted(seconds)
    return f", the slowest of twenty {ordered[len(ordered) * 19 // 20] * 1e3:.1f} ms"


async def measured(folder: Path, sizes: Sizes, owners: int) -> AsyncIterator[Figure]:
    """A round: the messages belong to so many owners."""
    vocabulary, path = Vocabulary(random.Random(owners)), folder / f"{owners}.db"
    async with filled(path, sizes, owners, vocabulary) as store:
        yield Figure(f"{sizes.messages} messages of {owners} owner(s)", "")
        before = size_of(path)
        began = perf_counter()
        for owner in range(owners):
            await store.search(query(owner, ("nothing",)))
        took = perf_counter() - began
        yield Figure("  all of them indexed", f"{took:.1f} s, {took / sizes.messages * 1e6:.0f} µs a message")
        added = size_of(path) - before
        yield Figure(
            "  the index, a message", f"{added / sizes.messages:.0f} bytes ({added / before:.0%} of the file before)"
        )
        searches, scans = await asked(store, path, sizes, owners, vocabulary)
        median = statistics.median(searches)
        yield at_most("  a search, the median", median * 1e3, 10, "ms", spread(searches))
        ratio = f"{statistics.median(scans) / median:.0f} times as long"
        yield Figure("  LIKE", f"{statistics.median(scans) * 1e3:.1f} ms, {ratio}")
        seconds = await each(store.search(query(0, vocabulary.keywords(), HALFWAY)) for _ in range(50))
        yield at_most("  a search with a bound of time", statistics.median(seconds) * 1e3, 10, "ms", spread(seconds))
        seconds = await each(store.search(query(0, tuple(vocabulary.words[:3]))) for _ in range(20))
        yield Figure("  a search for the three most frequent words", f"{statistics.median(seconds) * 1e3:.1f} ms")
        scope, since = MemoryScope("", "owner 0", 0), NOON + timedelta(minutes=sizes.messages // (2 * TURNS) - 5)
        seconds = await each(store.recent(scope, since) for _ in range(20))
        yield Figure("  the last minutes of an owner", f"{statistics.median(seconds) * 1e3:.1f} ms")
        (seconds_of_deletion,) = await each([store.delete("conversation 0")])
        yield Figure("  a conversation deleted", f"{seconds_of_deletion:.2f} s")


def query(owner: int, keywords: tuple[str, ...], since: datetime | None = None) -> MemoryQuery:
    """A search in all conversations of an owner."""
    return MemoryQuery(MemoryScope("", f"owner {owner}", 0), keywords, since, None, 10)


async def each(work: Iterable) -> list[float]:
    """How long each piece of work takes, one after the other."""
    seconds = []
    for one in work:
        began = perf_counter()
        await one
        seconds.append(perf_counter() - began)
    return seconds


async def asked(
    store: SqliteStore, path: Path, sizes: Sizes, owners: int, vocabulary: Vocabulary
) -> tuple[list[float], list[float]]:
    """How long each query takes, by a search and by LIKE."""
    searches, scans = [], []
    with closing(sqlite3.connect(path)) as plain:
        for number in range(sizes.queries):
            owner, keywords = number % owners, vocabulary.keywords()
            began = perf_counter()
            await store.search(query(owner, keywords))
            searches.append(perf_counter() - began)
            if number % 10 == 0:  # these take long
                began = perf_counter()
                plain.execute(LIKE, (f"owner {owner}", 0, 2**62, *(f"%{word}%" for word in keywords))).fetchall()
                scans.append(perf_counter() - began)
    return searches, scans


async def main(sizes: Sizes) -> None:
    """Print the figures of both rounds."""
    with tempfile.TemporaryDirectory() as folder:
        for owners in (1, 100):
            async for figure in measured(Path(folder), sizes, owners):
                print(figure, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few messages only")
    asyncio.run(main(QUICK if parser.parse_args().quick else Sizes()))
