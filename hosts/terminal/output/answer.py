"""An answer of a model on a terminal, rendered as Markdown while it streams.

A block that is complete is written once, and so is each line of code; only what is unfinished is drawn again. So the
scrollback holds the answer as it reads, however long it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from rich.console import Console

from .redrawn import RedrawnLines
from .rendering import Line
from .streaming import Blocks, Page, Reader

_PAUSE = 0.04
"""The least number of seconds between two drawings."""

_PAUSE_PER_SECOND = 5
"""How many seconds pass after a drawing for each second that it took: a slow one may not hold up everything else."""


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


class Pacer:
    """Calls a function when it is requested, but not too often: requests that come too early are one call later.

    Without a running event loop the function is called at each request.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._next = 0.0
        self._waiting: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Call the function now, or when the pause is over."""
        if self._waiting is not None:
            return
        wait, loop = self._next - perf_counter(), _running_loop()
        if wait > 0 and loop is not None:
            self._waiting = loop.call_later(wait, self._call)
        else:
            self._call()

    def cancel(self) -> None:
        """Forget the call that is due later, if there is one."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _call(self) -> None:
        self._waiting = None
        begun = perf_counter()
        self._function()
        ended = perf_counter()
        self._next = ended + max(_PAUSE, (ended - begun) * _PAUSE_PER_SECOND)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
