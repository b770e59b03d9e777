"""An answer of a model on a terminal, rendered as Markdown while it streams.

A block that is complete is written once, and so is each line of code; only what is unfinished is drawn again. So the
scrollback holds the answer as it reads, however long it is.
"""

from __future__ import annotations

from rich.console import Console

from .pacer import Pacer
from .redrawn import RedrawnLines
from .rendering import Line
from .streaming import Blocks, Page, Reader


class StreamedAnswer:
    """Shows one answer as its pieces arrive; `max_width` is the most cells of a line of text.

    Call `finish` or `discard` when there are no more pieces, before anything else writes to the terminal.
    """

    def __init__(self, console: Console, max_width: int) -> None:
        self._lines = RedrawnLines(console)
        self._reader: Reader = Blocks(Page(console, max_width))
        self._rest = ""
        self._drawing = Pacer(self._show)

    def feed(self, text: str) -> None:
        """Add a piece of the answer. It is shown now, or a moment later."""
        self._rest += text
        self._drawing.request()

    def finish(self) -> None:
        """Write the rest of the answer, and end its last line."""
        self._drawing.cancel()
        self._rest += "\n"
        complete = self._take_complete()
        self._lines.write([*complete, *self._reader.draft(self._rest)])
        self._rest = ""

    def discard(self) -> bool:
        """Take the answer back, and return True; return False if some of it has left the screen already."""
        self._drawing.cancel()
        self._rest = ""
        return self._lines.erase()

    def _show(self) -> None:
        complete = self._take_complete()
        self._lines.write(complete, self._reader.draft(self._rest))

    def _take_complete(self) -> list[Line]:
        """Take what is complete from the text that is not written yet, and return its lines."""
        lines: list[Line] = []
        while (taken := self._reader.take(self._rest)) is not None:
            lines += taken.lines
            self._rest, self._reader = taken.rest, taken.reader
        return lines
