"""Writes on a terminal, or plainly where there is none.

On a terminal there is colour, lines break between words, and something turns while one has to wait. Anywhere else (a
pipe, a file) the same lines come out bare, without escape codes and as long as they are, so that scripts can read
them.
"""

from __future__ import annotations

from rich.console import Console
from rich.panel import Panel
from rich.status import Status
from rich.text import Text
from typing_extensions import override

from ....effects.text import printable
from .printable import one_line
from .wrapping import Wrapping

WIDEST = 100
"""The most cells of a line of text; longer ones are hard to read."""

DIM = "dim"


class _Output(Console):
    """Where it is written. When nobody reads it any more, that is an error like any other."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class TerminalWriter:
    """Writes on stdout. `lively` says that this is a terminal."""

    def __init__(self, *, lively: bool) -> None:
        self.lively = lively
        self._output = _Output(highlight=False, force_terminal=None if lively else False)
        self._waiting: Status | None = None
        self._flowing: tuple[str, Wrapping] | None = None
        self._asides: list[str] = []

    @property
    def width(self) -> int:
        """How many cells a line of text has."""
        return min(self._output.width, WIDEST)

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line, or several, beginning at the left."""
        self.finish()
        wrapping = self._wrapping()
        self._write(f"{wrapping.feed(printable(text))}{wrapping.finish()}\n", style)

    def note(self, text: str) -> None:
        """Write a remark of the program, beside what is said."""
        self.line(text, DIM)

    def aside(self, text: str) -> None:
        """The same for a remark that comes at any moment: it waits until what flows has ended."""
        if self._flowing is None:
            self.note(text)
        else:
            self._asides.append(text)

    def command(self, text: str, style: str = "") -> None:
        """Write a line that is to be copied: it stays one line, and where that is full only the terminal breaks it."""
        self.finish()
        self._write(f"{printable(text)}\n", style)

    def row(self, text: str) -> None:
        """Write one line of a table; on a terminal it is cut off where the line is full."""
        self.finish()
        if self.lively:
            self._output.print(Text(printable(text)), no_wrap=True, overflow="ellipsis")
        else:
            self._write(f"{printable(text)}\n")

    def heading(self, text: str) -> None:
        """Write the heading of a part."""
        self.line()
        self.line(text, "bold")

    def flow(self, text: str, style: str = "") -> None:
        """Write a text that comes in pieces, one after the other. Another style begins on a line of its own."""
        if self._flowing is None or self._flowing[0] != style:
            self.finish()
            self._flowing = (style, self._wrapping())
        style, wrapping = self._flowing
        self._write(wrapping.feed(printable(text)), style)

    def box(self, title: str, text: str) -> None:
        """Write a longer text to look at, with its lines as they are."""
        self.finish()
        heading, content = one_line(title), printable(text).rstrip()
        if self.lively:
            panel = Panel.fit(Text(content), title=Text(heading), title_align="left", border_style=DIM)
            self._output.print(panel)
        else:
            self._write(f"[{heading}]\n{content}\n")

    def wait_for(self, what: str) -> None:
        """Say what is being waited for, until something else is written. Only on a terminal."""
        self.finish()
        if self.lively:
            self._waiting = self._output.status(Text(one_line(what, self._output.width - 4), style=DIM))
            self._waiting.start()

    def finish(self) -> None:
        """End what is half written, before somebody else writes on the same terminal."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.stop()
        flowing, self._flowing = self._flowing, None
        if flowing is not None:
            style, wrapping = flowing
            self._write(f"{wrapping.finish()}\n", style)
        asides, self._asides = self._asides, []
        for aside in asides:
            self.note(aside)

    def _wrapping(self) -> Wrapping:
        return Wrapping(self.width if self.lively else None)

    def _write(self, text: str, style: str = "") -> None:
        if text:
            self._output.print(Text(text, style=style, end=""), end="", soft_wrap=True)
