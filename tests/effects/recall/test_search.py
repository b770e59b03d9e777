"""Searching by keywords and by vectors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from turnwise.effects.recall import search
from turnwise.effects.recall.ports import PartFailed
from turnwise.effects.recall.search import BATCH, ConversationSearch, Embedding, VectorSearch, fuse
from turnwise.effects.recall.terms import ANY_TIME, Bounds
from turnwise.states.values.acts import FoundText, MemoryQuery, MemoryScope

from ...support.memories.listed_memory import ListedMemory

NOON = datetime(2025, 9, 15, 12, tzinfo=UTC)
SCOPE = MemoryScope("now", "anna", 1)


def said(text: str, minutes: int = 0, conversation: str = "earlier") -> FoundText:
    """Return a text that was said so many minutes before noon."""
    return FoundText(conversation, 1, NOON - timedelta(minutes=minutes), "user", text)


def memory_of(*texts: FoundText) -> ListedMemory:
    """Return a memory of texts of one owner."""
    return ListedMemory(*texts, owners={"earlier": "anna", "other": "ben"})


TOPICS = {"raw fish": (1.0, 0.0), "sushi": (0.9, 0.1), "car": (0.0, 1.0)}


async def by_topic(texts: Sequence[str]) -> list[tuple[float, float]]:
    """Return the vector of the topic that each text is about."""
    return [next((vector for topic, vector in TOPICS.items() if topic in text), (0.5, 0.5)) for text in texts]


def searching(memory: ListedMemory, embed: Any = None, limit: int = 10, seconds: float = 1.0) -> ConversationSearch:
    """Return a search of the memory."""
    vectors = None if embed is None else VectorSearch(memory, Embedding(embed, seconds))
    return ConversationSearch(memory, limit, vectors)


async def texts_of(search: ConversationSearch, *keywords: str, meaning: str = "", bounds: Bounds = ANY_TIME) -> Any:
    """Return the texts that the search finds."""
    found = await search.find(SCOPE, keywords, bounds, meaning or " ".join(keywords))
    await search.close()
    return [one.text for one in found]


class TestKeywords:
    """J4: keywords, bounds, the maximum."""

    async def test_more_hits_than_the_maximum_are_cut(self) -> None:
        """J4: best first, also if the memory returns more than it was asked for."""

        class Generous(ListedMemory):
            async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
                return tuple(self.texts)

        memory = Generous(*(said(f"sushi {number}") for number in range(5)))

        assert await texts_of(searching(memory, limit=2), "sushi") == ["sushi 0", "sushi 1"]

    async def test_a_text_that_was_said_again_and_again_is_found_once(self) -> None:
        """It would take the place of others."""
        memory = memory_of(said("sushi", 3), said("sushi bar", 2), said("sushi", 1))

        assert await texts_of(searching(memory), "sushi") == ["sushi", "sushi bar"]

    async def test_without_keywords_nothing_is_searched(self) -> None:
        """J4: neither the keywords nor the vectors."""
        memory = memory_of(said("sushi"))

        assert await texts_of(searching(memory, by_topic), meaning="sushi") == []
        assert memory.queries == []

    async def test_the_bounds_are_part_of_the_search(self) -> None:
        """J4: `from` and `to`."""
        memory = memory_of(said("sushi a", 30), said("sushi b", 20), said("sushi c", 10))
        bounds = Bounds(NOON - timedelta(minutes=20), NOON - timedelta(minutes=11))

        assert await texts_of(searching(memory), "sushi", bounds=bounds) == ["sushi b"]

    async def test_texts_that_are_known_make_room_for_others(self) -> None:
        """A text of the last minutes stands in the request already."""
        search = searching(memory_of(said("sushi a"), said("sushi b")), limit=1)

        found = await search.find(SCOPE, ["sushi"], ANY_TIME, "", ["sushi a"])

        assert [one.text for one in found] == ["sushi b"]

    @pytest.mark.parametrize("error", [ValueError("secret"), asyncio.CancelledError()])
    async def test_a_memory_that_fails_is_a_failure_without_its_words(self, error: BaseException) -> None:
        """The caller decides what that means."""

        class Broken(ListedMemory):
            async def search(self, query: MemoryQuery) -> tuple[FoundText, ...]:
                raise error

        with pytest.raises(PartFailed, match=f"^{type(error).__name__}$"):
            await texts_of(searching(Broken()), "sushi")


class TestVectors:
    """J4: vectors off, on, raising, timing out."""

    async def test_texts_that_mean_the_same_are_found_in_other_words(self) -> None:
        """J4: on; they are merged with those that hold the keywords."""
        memory = memory_of(said("a car"), said("raw fish"), said("sushi bar"))

        assert await texts_of(searching(memory, by_topic, limit=2), "sushi") == ["sushi bar", "raw fish"]

    async def test_without_a_function_the_keywords_alone_decide(self) -> None:
        """J4: off."""
        memory = memory_of(said("raw fish"), said("sushi bar"))

        assert await texts_of(searching(memory), "sushi") == ["sushi bar"]

    @pytest.mark.parametrize("fault", ["raises", "hangs", "nan", "dimensions", "nothing"])
    async def test_a_function_that_fails_leaves_the_keywords(self, fault: str, caplog: Any) -> None:
        """J4: raising, timing out, or returning what cannot be right. The log has no content."""

        async def embed(texts: Sequence[str]) -> Any:
            if fault == "raises":
                raise ValueError("secret")
            if fault == "hangs":
                await asyncio.Event().wait()
            return {"nan": [[float("nan")]], "dimensions": [[1.0], [1.0, 2.0]], "nothing": []}[fault]

        caplog.set_level(logging.INFO)
        search = searching(memory_of(said("raw fish"), said("sushi bar")), embed, seconds=0.02)

        assert await texts_of(search, "sushi") == ["sushi bar"]
        assert "vectors" in caplog.text
        assert "secret" not in caplog.text and "sushi" not in caplog.text

    async def test_vectors_of_different_dimensions_are_never_compared(self) -> None:
        """A function may change; its old vectors do no harm."""
        memory = memory_of(said("raw fish"), said("a car"))
        await texts_of(searching(memory, by_topic), "sushi")

        async def by_topic_in_3d(texts: Sequence[str]) -> list[tuple[float, ...]]:
            return [(*vector, 0.1) for vector in await by_topic(texts)]

        by_topic_in_3d.__qualname__, by_topic_in_3d.__module__ = by_topic.__qualname__, by_topic.__module__

        assert await texts_of(searching(memory, by_topic_in_3d, limit=1), "sushi") == ["raw fish"]
        assert len(memory.vectors) == 4

    async def test_a_text_is_embedded_once(self) -> None:
        """Its vector is kept."""
        embedded: list[str] = []

        async def embed(texts: Sequence[str]) -> Any:
            embedded.extend(texts)
            return await by_topic(texts)

        search = searching(memory_of(said("raw fish")), embed)
        await texts_of(search, "sushi")
        await texts_of(search, "sushi")

        assert embedded == ["sushi", "raw fish", "sushi"]

    async def test_many_texts_are_embedded_in_the_background(self) -> None:
        """Before a search only one batch, so that it does not wait for all of them."""
        memory = memory_of(*(said(f"{number}") for number in range(3 * BATCH)))
        at_rest = asyncio.Event()

        async def embed(texts: Sequence[str]) -> Any:
            if len(memory.vectors) >= 2 * BATCH:
                at_rest.set()
            return await by_topic(texts)

        search = searching(memory, embed)
        await search.find(SCOPE, ["sushi"], ANY_TIME, "sushi")
        before = len(memory.vectors)
        await asyncio.wait_for(at_rest.wait(), 10)
        for _ in range(100):
            await asyncio.sleep(0)
        await search.close()

        assert (before, len(memory.vectors)) == (BATCH, 3 * BATCH)

    async def test_closing_ends_what_runs_in_the_background(self) -> None:
        """Also a function that hangs."""
        memory = memory_of(*(said(f"{number}") for number in range(3 * BATCH)))

        async def embed(texts: Sequence[str]) -> Any:
            if len(memory.vectors) >= BATCH:
                await asyncio.Event().wait()
            return await by_topic(texts)

        search = searching(memory, embed, seconds=60)
        await search.find(SCOPE, ["sushi"], ANY_TIME, "sushi")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await search.close()
        await asyncio.gather(*others, return_exceptions=True)

        assert len(memory.vectors) == BATCH

    async def test_slow_new_vectors_do_not_keep_a_search_from_older_ones(self, monkeypatch: Any) -> None:
        """What has a vector is found, although the new texts take too long."""
        memory = memory_of(said("raw fish"))
        await texts_of(searching(memory, by_topic), "sushi")
        monkeypatch.setattr(search, "SHARE_BEFORE_SEARCH", 0.001)
        memory.texts.append(said("slow"))

        async def embed(texts: Sequence[str]) -> Any:
            if "slow" in texts:
                await asyncio.Event().wait()
            return await by_topic(texts)

        embed.__qualname__, embed.__module__ = by_topic.__qualname__, by_topic.__module__

        assert await texts_of(searching(memory, embed, seconds=30), "sushi") == ["raw fish"]


class TestOwners:
    """J4: recall never crosses owners."""

    @pytest.mark.parametrize("embed", [None, by_topic])
    async def test_texts_of_another_owner_are_not_found(self, embed: Any) -> None:
        """Neither by keywords nor by vectors."""
        memory = memory_of(said("sushi a"), said("sushi b", conversation="other"))

        assert await texts_of(searching(memory, embed), "sushi") == ["sushi a"]


class TestFusion:
    """Reciprocal rank fusion."""

    def test_what_several_searches_found_comes_first(self) -> None:
        """Even if each of them has something else before it."""
        a, b, c, d = (said(text) for text in "abcd")

        assert fuse([a, b], [c, b, d]) == (b, a, c, d)

    def test_a_single_ranking_stays_as_it_is(self) -> None:
        """Without what stands in it twice."""
        a, b = said("a"), said("b")

        assert fuse([a, b, a], []) == (a, b)
