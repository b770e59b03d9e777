"""Text on its way to a screen and back: broken between words, made harmless, read as an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from turnwise.effects.text import printable
from turnwise.hosts.terminal.chat.piped_input import answer_in
from turnwise.hosts.terminal.output.printable import one_line
from turnwise.hosts.terminal.output.wrapping import Wrapping
from turnwise.hosts.terminal.output.writer import TerminalWriter
from turnwise.states.values.questions import UserQuestion

PROSE = st.text(st.sampled_from("ab 漢\n"), max_size=60)


def wrapped(pieces: list[str], width: int) -> str:
    """A text that comes in these pieces, as it stands on the screen in the end."""
    wrapping = Wrapping(width)
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


class TestPrintable:
    """A terminal obeys control characters, so nothing that is said may hold any."""

    @pytest.mark.parametrize(
        ("said", "shown"),
        [
            ("\x1b[2J\x1b[1;31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
            ("a\rb\x08c\x00\x9bd\u202ee", "abcde"),
            ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
            ("half \ud800", "half \N{REPLACEMENT CHARACTER}"),
        ],
    )
    def test_control_characters_are_left_out(self, said: str, shown: str) -> None:
        """Colours, titles, links, carriage returns, marks that turn the order of a text around."""
        assert printable(said) == shown

    def test_one_line_is_cut_off_with_an_ellipsis(self) -> None:
        """White space of any kind becomes one space."""
        assert (one_line("a\n b\tc"), one_line("abcdef", 4)) == ("a b c", "abc…")


ONE = UserQuestion.model_validate({"question": "How many?", "options": [{"label": "2"}, {"label": "Four"}]})
SEVERAL = UserQuestion.model_validate(
    {"question": "Which?", "multiSelect": True, "options": [{"label": "a"}, {"label": "b, c"}, {"label": "d"}]}
)


class TestAnswersInALine:
    """P15: labels by name or number, or words of one's own."""

    @pytest.mark.parametrize(
        ("line", "answer"),
        [("four", "Four"), ("1", "2"), ("2", "2"), (" Four ", "Four"), ("five, at least", "five, at least")],
    )
    def test_one_choice(self, line: str, answer: str) -> None:
        """A label comes before a number; everything else is free text, as it was typed."""
        assert answer_in(line, ONE) == answer

    @pytest.mark.parametrize(
        ("line", "answer"), [("1, 3", ["a", "d"]), ("b, c", ["b, c"]), ("a,a", ["a"]), ("a, x", ["a, x"])]
    )
    def test_several_choices(self, line: str, answer: list[str]) -> None:
        """Commas stand between choices, unless the line as a whole is a label or holds something else."""
        assert answer_in(line, SEVERAL) == answer


def test_an_aside_waits_for_the_end_of_what_flows(capsys: pytest.CaptureFixture[str]) -> None:
    """It does not break a sentence that is being said; where nothing flows it is written at once."""
    pen = TerminalWriter(lively=False)
    pen.aside("The line is down.")
    pen.flow("The table ")
    pen.aside("The line is down again.")
    pen.flow("is booked.")
    pen.finish()

    assert capsys.readouterr().out == "The line is down.\nThe table is booked.\nThe line is down again.\n"
