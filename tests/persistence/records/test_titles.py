"""Titles of conversations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.persistence.summaries import TITLE, message_title


class TestTitles:
    """The title that a message gives."""

    @given(text=st.text())
    def test_is_one_short_line(self, text: str) -> None:
        """Whatever the message is."""
        title = message_title(text, 0)

        if not text.strip():
            assert title is None
        else:
            assert title is not None
            assert title == " ".join(title.split())
            assert 0 < len(title) <= TITLE
            line = " ".join(text.split())
            assert title == (line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…") or title[-1] == "…"

    @pytest.mark.parametrize("make", ["x".__mul__, "x ".__mul__, " \n".__mul__], ids=["word", "words", "blanks"])
    def test_of_a_long_message_is_made_of_its_beginning(self, make: Callable[[int], str]) -> None:
        """A message of a million characters is read only as far as the title goes, or the blanks in front of it."""
        title = message_title(f"{make(500_000)} end", 0)

        assert title is not None
        assert len(title) <= TITLE

    @pytest.mark.parametrize(
        ("text", "images", "title"),
        [
            ("x" * 60, 0, "x" * 60),
            ("x" * 61, 0, "x" * 59 + "…"),
            ("a" * 58 + " " + "b" * 9, 0, "a" * 58 + " …"),
            ("", 1, "1 image"),
            (" ", 20, "20 images"),
            ("this", 2, "this"),
            ("", 0, None),
        ],
    )
    def test_is_cut_with_an_ellipsis_and_counts_images(self, text: str, images: int, title: str | None) -> None:
        """Images are counted only where there is no text."""
        assert message_title(text, images) == title
