"""Text from models and tools, made fit for a terminal."""

from __future__ import annotations

import pytest

from turnwise.effects.printable import printable
from turnwise.hosts.terminal.output.lines import one_line


class TestPrintable:
    """A terminal interprets control characters, so no text may contain any."""

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
    def test_control_characters_are_removed(self, said: str, shown: str) -> None:
        """Colours, titles, links, carriage returns, and marks that reverse the direction of a text."""
        assert printable(said) == shown

    def test_one_line_is_cut_off_with_an_ellipsis(self) -> None:
        """Whitespace of any kind becomes one space."""
        assert (one_line("a\n b\tc"), one_line("abcdef", 4)) == ("a b c", "abc…")
