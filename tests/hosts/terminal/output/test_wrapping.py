"""Lines break between words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from turnwise.hosts.terminal.output.wrapping import LineWrapper

PROSE = st.text(st.sampled_from("ab 漢\n"), max_size=60)


def wrapped(pieces: list[str], width: int) -> str:
    """A text that comes in these pieces, as it stands on the screen in the end."""
    wrapping = LineWrapper(width)
    return "".join([*(wrapping.feed(piece) for piece in pieces), wrapping.finish()])


class TestWrapping:
    """Lines break between words."""

    def test_a_word_that_does_not_fit_begins_a_line(self) -> None:
        """Also where the word comes in two pieces."""
        assert wrapped(["one two th", "ree"], 10) == "one two\nthree"

    def test_indentation_and_line_ends_stay(self) -> None:
        """A list or a program keeps its form."""
        assert wrapped(["- a\n  - b", "\n\n", "c"], 10) == "- a\n  - b\n\nc"

    @given(st.lists(PROSE, max_size=5), st.integers(4, 20))
    def test_no_word_is_lost_and_no_line_is_too_long(self, pieces: list[str], width: int) -> None:
        """The same words in the same order, however the text was cut; a longer line is a single word."""
        shown = wrapped(pieces, width)

        assert shown.split() == "".join(pieces).split()
        assert all(cell_len(line) <= width or len(line.split()) == 1 for line in shown.splitlines())
