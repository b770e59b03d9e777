"""What a model wants to search for is read from its answer: the terms, and the moments that it writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.recall.terms import (
    MAX_CHARACTERS,
    MAX_KEYWORDS,
    NOTHING,
    Bounds,
    bounds_of,
    read_keywords,
    read_search_terms,
    read_span,
)

from ...support.cases import holds_for


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
