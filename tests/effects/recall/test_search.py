"""Searching older conversations by keywords and by vectors, for what a model wants to search for."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
import math
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.recall import search
from turnwise.effects.recall.ports import PartFailed
from turnwise.effects.recall.search import (
    BATCH,
    MAX_BYTES_OF_TEXT,
    MAX_DIMENSIONS,
    ConversationSearch,
    Embedding,
    VectorSearch,
    fuse,
)
from turnwise.effects.recall.terms import (
    ANY_TIME,
    MAX_CHARACTERS,
    MAX_KEYWORDS,
    NOTHING,
    Bounds,
    bounds_of,
    read_keywords,
    read_search_terms,
    read_span,
)
from turnwise.states.values.acts import FoundText, MemoryQuery, MemoryScope

from ...support.cases import holds_for
from ...support.memories.listed_memory import ListedMemory

# --- Searching by keywords and by vectors.


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
    await search.stop()
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
        await search.stop()

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
        await search.stop()
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


# --- Asking an application's embedding function.


async def two(texts: Sequence[str]) -> list[list[float]]:
    """Return a vector for each text."""
    return [[float(len(text)), 1.0] for text in texts]


def returning(value: Any) -> Any:
    """Return an embedding function that returns this."""

    async def embed(texts: Sequence[str]) -> Any:
        return value

    return embed


class TestAskedVectors:
    """J4: what is no vector is not used."""

    async def test_each_text_gets_its_vector(self) -> None:
        """In the order of the texts."""
        assert await Embedding(two, 1).vectors(["a", "bcd"]) == ((1.0, 1.0), (3.0, 1.0))

    @holds_for(
        "value",
        [
            None,
            5,
            "ab",
            b"ab",
            [],
            [[1.0]],
            [[1.0], [1.0], [1.0]],
            [[1.0], [1.0, 2.0]],
            [[1.0], [math.nan]],
            [[1.0], [math.inf]],
            [[1.0], [0.0]],
            [[1.0], []],
            itertools.repeat([1.0]),
            [[1.0], "1"],
            [[1.0], ["x"]],
            [[1.0], None],
            [[1.0], [None]],
            [[1.0], [10**400]],
            [[1.0], [1.0] * (MAX_DIMENSIONS + 1)],
        ],
    )
    async def test_an_answer_that_cannot_be_right_is_refused_as_a_whole(self, value: Any) -> None:
        """J4: too few, too many, of different dimensions, without a direction, or no numbers."""
        with pytest.raises(PartFailed):
            await Embedding(returning(value), 1).vectors(["a", "b"])

    async def test_arrays_of_other_libraries_are_vectors(self) -> None:
        """Embeddings often come as arrays of numpy."""
        numpy = pytest.importorskip("numpy")

        assert await Embedding(returning(numpy.ones((1, 2), "float32")), 1).vectors(["a"]) == ((1.0, 1.0),)

    async def test_a_plain_function_runs_in_a_thread_of_its_own(self) -> None:
        """So a local model does not block the event loop."""
        threads = []

        def embed(texts: Sequence[str]) -> list[list[float]]:
            threads.append(threading.current_thread())
            return [[1.0]]

        assert await Embedding(embed, 1).vectors(["a"]) == ((1.0,),)  # type: ignore[arg-type]
        assert threads != [threading.main_thread()]

    @pytest.mark.parametrize("error", [ValueError("secret"), asyncio.CancelledError(), SystemExit(), TimeoutError()])
    async def test_a_function_that_raises_is_a_failure_without_its_words(self, error: BaseException) -> None:
        """J4: whatever it raises."""

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            raise error

        with pytest.raises(PartFailed, match=f"^{type(error).__name__}$"):
            await Embedding(embed, 1).vectors(["a"])

    async def test_a_function_that_hangs_is_a_failure(self) -> None:
        """J4, J19: after the seconds of the setting."""

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            await asyncio.Event().wait()
            return []

        with pytest.raises(PartFailed, match="no answer within"):
            await Embedding(embed, 0.01).vectors(["a"])

    async def test_long_texts_are_shortened(self) -> None:
        """Since no model takes in any length."""
        ((length, _),) = await Embedding(two, 1).vectors(["x" * 1_000_000])

        assert length <= MAX_BYTES_OF_TEXT


class TestName:
    """Vectors are kept under the name of what made them."""

    def test_a_function_may_have_a_name(self) -> None:
        """Such as the name of its model."""
        embed = functools.partial(two)
        embed.name = "text-embedding-3-small"  # type: ignore[attr-defined]

        assert Embedding(embed, 1).name == "text-embedding-3-small"

    @pytest.mark.parametrize("name", [None, "", " ", 5])
    def test_otherwise_it_has_that_of_its_definition(self, name: Any) -> None:
        """So two functions without a name are not mixed up."""
        embed = functools.partial(two)
        embed.name = name  # type: ignore[attr-defined]

        assert Embedding(embed, 1).name.endswith(".two")


# --- What a model wants to search for is read from its answer: the terms, and the moments that it writes.


def utc(*parts: int) -> datetime:
    """Return a moment in UTC."""
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


LAST = (23, 59, 59, 999_999)


class TestSpans:
    """A text stands for all of the time that it names."""

    @holds_for(
        ("text", "first", "last"),
        [
            ("2025", utc(2025, 1, 1), utc(2025, 12, 31, *LAST)),
            ("2024-02", utc(2024, 2, 1), utc(2024, 2, 29, *LAST)),
            ("2025-9", utc(2025, 9, 1), utc(2025, 9, 30, *LAST)),
            (" 2025-09-15 ", utc(2025, 9, 15), utc(2025, 9, 15, *LAST)),
            ("20250915", utc(2025, 9, 15), utc(2025, 9, 15, *LAST)),
            ("2025-09-15T17:53", utc(2025, 9, 15, 17, 53), utc(2025, 9, 15, 17, 53)),
            ("2025-09-15t17:53z", utc(2025, 9, 15, 17, 53), utc(2025, 9, 15, 17, 53)),
            ("2025-09-15 17:53 UTC", utc(2025, 9, 15, 17, 53), utc(2025, 9, 15, 17, 53)),
            ("2025-09-15T17:53:00+02:00", utc(2025, 9, 15, 15, 53), utc(2025, 9, 15, 15, 53)),
            ("9999-12-31", utc(9999, 12, 31), utc(9999, 12, 31, *LAST)),
        ],
    )
    def test_of_iso_8601(self, text: str, first: datetime, last: datetime) -> None:
        """J4: a year, a month, a day or a moment; a moment without a time zone is in UTC."""
        span = read_span(text)

        assert span is not None
        assert (span.first, span.last) == (first, last)

    @holds_for(
        "given",
        [
            None, 5, True, [], {}, "", "  ", "yesterday", "2025-13", "0000", "0000-00", "2025-02-30", "12:30",
            "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "2025-09-15" * 1000, "\x00", "٢٠٢٥",
        ],
    )  # fmt: skip
    def test_of_anything_else_there_are_none(self, given: Any) -> None:
        """Also of moments outside of the calendar."""
        assert read_span(given) is None

    @given(st.text())
    def test_no_text_is_too_odd(self, text: str) -> None:
        """Reading never raises, and a span never ends before it begins."""
        span = read_span(text)

        assert span is None or span.first <= span.last


class TestBounds:
    """The bounds of a search."""

    def test_a_single_day_is_a_whole_day(self) -> None:
        """J4: `from` and `to` are both included."""
        day = read_span("2025-09-15")

        assert bounds_of(day, day) == Bounds(utc(2025, 9, 15), utc(2025, 9, 15, *LAST))

    def test_reversed_bounds_are_exchanged(self) -> None:
        """J4: the model meant the time between them."""
        later, earlier = read_span("2025-09-20"), read_span("2025-09-10")

        assert bounds_of(later, earlier) == Bounds(utc(2025, 9, 10), utc(2025, 9, 20, *LAST))

    def test_spans_that_overlap_are_not_reversed(self) -> None:
        """From a day of a month to the end of that month."""
        assert bounds_of(read_span("2025-09-20"), read_span("2025-09")) == Bounds(
            utc(2025, 9, 20), utc(2025, 9, 30, *LAST)
        )

    def test_what_is_not_given_is_no_bound(self) -> None:
        """On either side."""
        assert bounds_of(None, None) == Bounds()
        assert bounds_of(None, read_span("2025")).since is None


class TestReadingTheAnswer:
    """The answer is one JSON object, in the ways in which models write it."""

    @pytest.mark.parametrize(
        "text",
        [
            '{"keywords": ["sushi", "tonight"]}',
            '```json\n{"keywords": ["sushi", "tonight"], "from": null, "to": ""}\n```',
            'I look for {things}. {"keywords": ["sushi", "tonight"], "from": "soon", "to": 5} There.',
            '{"keywords": []} No, better: {"keywords": ["sushi", "tonight"], "more": {"keywords": []}}',
            '{"keywords": "sushi, tonight"}',
            '{"keywords": [" sushi ", "tonight", "Sushi", "", null, ["x"], {"y": 1}, true]}',
        ],
    )
    def test_the_keywords_are_found(self, text: str) -> None:
        """J4: leniently, because half of the terms are better than none."""
        assert read_search_terms(text).keywords == ("sushi", "tonight")

    def test_the_bounds_are_read_with_their_time_zones(self) -> None:
        """J4: `from` and `to` bound the search."""
        text = '{"keywords": ["a"], "from": "2025-09-15T02:00:00+03:00", "to": "2025-09-15"}'

        assert read_search_terms(text).bounds == Bounds(
            datetime(2025, 9, 14, 23, tzinfo=UTC), datetime(2025, 9, 15, 23, 59, 59, 999_999, tzinfo=UTC)
        )

    @holds_for(
        "text",
        [
            "", "sushi", "null", "[]", "{", '{"keyword": ["sushi"]}', '{"keywords": null}', '{"keywords": {}}',
            '{"keywords": [', '{"keywords":' * 50_000, "{" * 500_000, '{"keywords": [""]}',
        ],
    )  # fmt: skip
    def test_without_keywords_nothing_is_searched(self, text: str) -> None:
        """J4: also if the answer is malformed, or meant to break its reader."""
        assert read_search_terms(text).keywords == ()

    @given(st.text())
    def test_no_answer_is_too_odd(self, text: str) -> None:
        """Reading never raises."""
        assert read_search_terms(text) == NOTHING


class TestBounding:
    """What a model writes goes on to a store, so it is bounded."""

    def test_there_are_only_so_many_keywords_of_so_many_characters(self) -> None:
        """J4: whatever the model writes."""
        text = json.dumps({"keywords": [f"{number} {'x' * 10_000}" for number in range(1_000)]})

        keywords = read_search_terms(text).keywords

        assert len(keywords) == MAX_KEYWORDS
        assert {len(keyword) for keyword in keywords} == {MAX_CHARACTERS}

    def test_numbers_are_keywords_if_they_are_no_flood_of_digits(self) -> None:
        """A model writes years and sizes as numbers."""
        assert read_keywords([2025, 4.5, 10**200, -1]) == ("2025", "4.5", "-1")

    @given(st.lists(st.text() | st.integers() | st.floats() | st.none()) | st.text())
    def test_each_keyword_can_be_stored(self, given: object) -> None:
        """Half a character (a lone surrogate) is replaced, and no keyword is blank."""
        keywords = read_keywords(given)

        assert all(keyword.strip() and keyword.encode() for keyword in keywords)
        assert len({keyword.casefold() for keyword in keywords}) == len(keywords) <= MAX_KEYWORDS

    def test_a_lone_surrogate_is_replaced(self) -> None:
        """JSON text can hold it as an escape."""
        assert read_search_terms('{"keywords": ["a\\ud800"]}').keywords == ("a�",)
