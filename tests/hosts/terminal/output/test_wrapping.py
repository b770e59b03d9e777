"""Wrapping a text while it arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from turnwise.hosts.terminal.output.drawing import LineWrapper

PROSE = st.text(st.sampled_from("ab 漢\n"), max_size=60)


def wrapped(pieces: list[str], width: int) -> str:
    """Return how a text that arrives in these pieces is written."""
    wrapper = LineWrapper(width)
    return "".join([*(wrapper.feed(piece) for piece in pieces), wrapper.finish()])


class TestWrapping:
    """Lines break between words."""

    def test_a_word_that_does_not_fit_begins_a_line(self) -> None:
        """Also if the word arrives in two pieces."""
        assert wrapped(["one two th", "ree"], 10) == "one two\nthree"

    def test_indentation_and_line_ends_stay(self) -> None:
        """A list or a program keeps its layout."""
        assert wrapped(["- a\n  - b", "\n\n", "c"], 10) == "- a\n  - b\n\nc"

    @given(st.lists(PROSE, max_size=5), st.integers(4, 20))
    def test_no_word_is_lost_and_no_line_is_too_long(self, pieces: list[str], width: int) -> None:
        """The words keep their order, however the text is cut; only a single long word exceeds the width."""
        shown = wrapped(pieces, width)

        assert shown.split() == "".join(pieces).split()
        assert all(cell_len(line) <= width or len(line.split()) == 1 for line in shown.splitlines())
