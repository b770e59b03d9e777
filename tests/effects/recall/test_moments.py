"""Reading the moments that a model writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.recall.terms import Bounds, bounds_of, read_span

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
