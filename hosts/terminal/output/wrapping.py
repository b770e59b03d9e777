"""Wraps lines between words while a text is still arriving.

A terminal breaks a line where it is full, even within a word. So a word is held back until its end has arrived, and
is then written on the line where it fits.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKENS = re.compile(r"\n|[^\S\n]+|\S+")


class LineWrapper:
    """Wraps a text to lines of at most `width` cells; with None its lines stay as they are.

    A word longer than a line is left for the terminal to break. Spaces at a line break are dropped.
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Add a piece of the text, and return what can be written now."""
        return text if self._width is None else "".join(self._take(token) for token in _TOKENS.findall(text))

    def finish(self) -> str:
        """Return the rest of the text."""
        return self._flush_word()

    def _take(self, token: str) -> str:
        if not token.isspace():
            self._word += token
            return ""
        flushed = self._flush_word()
        if token == "\n":
            self._column, self._space = 0, ""
            return f"{flushed}\n"
        self._space += token
        return flushed

    def _flush_word(self) -> str:
        word, space = self._word, self._space
        if not word or self._width is None:
            return ""
        self._word = self._space = ""
        end = self._column + cell_len(space) + cell_len(word)
        if self._column and end > self._width:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column = end
        return f"{space}{word}"
