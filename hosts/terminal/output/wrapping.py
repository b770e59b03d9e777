"""Breaks lines between words while a text is still coming in.

A terminal breaks a line wherever it is full, in the middle of a word. So a word is held back until it is whole, and
then put where it fits.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Wrapping:
    """A text on its way to lines of at most `width` cells; None leaves lines as they are.

    A word that is longer than a line is left to the terminal. Spaces at which a line is broken are dropped.
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """What may be shown now, of this piece and of what was held back."""
        return text if self._width is None else "".join(self._take(piece) for piece in _PIECES.findall(text))

    def finish(self) -> str:
        """What was still held back."""
        return self._place()

    def _take(self, piece: str) -> str:
        if not piece.isspace():
            self._word += piece
            return ""
        placed = self._place()
        if piece == "\n":
            self._column, self._space = 0, ""
            return f"{placed}\n"
        self._space += piece
        return placed

    def _place(self) -> str:
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
