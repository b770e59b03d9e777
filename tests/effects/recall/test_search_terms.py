"""Reading what a model wants to search for."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.recall.terms import (
    MAX_CHARACTERS,
    MAX_KEYWORDS,
    NOTHING,
    Bounds,
    read_keywords,
    read_search_terms,
)

from ...support.cases import holds_for


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
