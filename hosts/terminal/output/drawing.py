"""Draws an answer of a model on a terminal, rendered as Markdown while it streams.

A block that is complete is written once, and so is each line of code; only what is unfinished is drawn again. So the
scrollback holds the answer as it reads, however long it is. Only the lines that differ from what is drawn are written,
so nothing flickers.

Text that is not rendered is wrapped between words while it is still arriving.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from rich.cells import cell_len
from rich.console import Console
from rich.segment import ControlType, Segment, Segments

from .markdown import Blocks, Line, Page, Reader


class StreamedAnswer:
    """Shows one answer as its pieces arrive; `max_width` is the most cells of a line of text.

    Call `finish` or `discard` when there are no more pieces, before anything else writes to the terminal.
    """

    def __init__(self, console: Console, max_width: int) -> None:
        self._lines = _RedrawnLines(console)
        self._reader: Reader = Blocks(Page(console, max_width))
        self._rest = ""
        self._drawing = _Pacer(self._show)

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


_PAUSE = 0.04
"""The least number of seconds between two drawings."""

_PAUSE_PER_SECOND = 5
"""How many seconds pass after a drawing for each second that it took: a slow one may not hold up everything else."""


class _Pacer:
    """Calls a function when it is requested, but not too often: requests that come too early are one call later.

    So what is drawn looks alive, and leaves time for everything else.

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


class _RedrawnLines:
    """The lines of one answer at the end of a terminal's output: those that are settled, and behind them those that are
    drawn again while they change.

    Settled lines are never written again; they scroll away like any other output. The cursor stays at the end of the
    last line.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._settled: list[Line] = []
        self._drawn: list[Line] = []

    @property
    def height(self) -> int:
        """How many rows can be drawn again at most: what has left the screen cannot be reached."""
        return max(1, self._console.height - 1)

    def write(self, settled: Sequence[Line], draft: Sequence[Line] = ()) -> None:
        """Replace what was drawn before by lines that are written for good, and behind them by a draft.

        Of a draft that does not fit the screen only the last lines are drawn.
        """
        shown = self._fitting(draft)
        self._replace([*settled, *shown])
        if settled and not shown:
            self._write([Segment.line()])
        self._settled += settled
        self._drawn = list(shown)

    def erase(self) -> bool:
        """Take everything back, also the lines that are settled, and return True; if some of them have left the
        screen, take back only what is drawn, and return False."""
        rows = self._rows([*self._settled, *self._drawn])
        if rows > self.height:
            self._replace(())
            return False
        if rows:
            up = rows - 1 if self._drawn else rows
            self._write([_control("\r"), *_up(up), _ERASE_BELOW])
        self._settled, self._drawn = [], []
        return True

    def _fitting(self, lines: Sequence[Line]) -> Sequence[Line]:
        rows = 0
        for index in range(len(lines) - 1, -1, -1):
            rows += self._rows([lines[index]])
            if rows > self.height:
                return lines[index + 1 :]
        return lines

    def _replace(self, lines: Sequence[Line]) -> None:
        """Draw these lines in place of those drawn before, beginning with the first that differs."""
        drawn, self._drawn = self._drawn, list(lines)
        same = _common(lines, drawn)
        if same == len(lines) == len(drawn):
            return
        if same == len(drawn):
            begin = [Segment.line()] if drawn else []
        else:
            same = min(same, max(0, len(lines) - 1))  # the cursor has to end behind a line that is written
            begin = [_control("\r"), *_up(self._rows(drawn[same:]) - 1)]
        shrinks = self._rows(lines[same:]) < self._rows(drawn[same:])
        self._write([*begin, *self._overwriting(lines[same:], shrinks)])

    def _overwriting(self, lines: Sequence[Line], shrinks: bool) -> Iterator[Segment]:
        """Yield what writes these lines over older ones. Each row is erased before it is written: erasing to the right
        of a full row would take its last character. Everything below is erased only if it has to be."""
        if not lines and shrinks:
            yield _ERASE_BELOW
        for index, line in enumerate(lines):
            if index:
                yield Segment.line()
            is_last = index == len(lines) - 1
            yield _ERASE_BELOW if self._rows([line]) > 1 or (is_last and shrinks) else _ERASE_ROW
            yield from line

    def _rows(self, lines: Sequence[Line]) -> int:
        """Return how many rows of the terminal these lines take, as wide as it is now."""
        return sum(_rows_of("".join(segment.text for segment in line), self._console.width) for line in lines)

    def _write(self, segments: Sequence[Segment]) -> None:
        self._console.print(Segments(segments), end="", soft_wrap=True)


def _common(lines: Sequence[Line], others: Sequence[Line]) -> int:
    """Return how many lines are the same at the beginning of both."""
    for index, (line, other) in enumerate(zip(lines, others, strict=False)):
        if line != other:
            return index
    return min(len(lines), len(others))


def _rows_of(text: str, width: int) -> int:
    """Return how many rows a line takes on a terminal, which breaks it where it is full. `Pure.`"""
    if cell_len(text) <= width:
        return 1
    rows, column = 1, 0
    for character in text:
        cells = cell_len(character)
        if column + cells > width:
            rows, column = rows + 1, 0
        column += cells
    return rows


def _control(sequence: str) -> Segment:
    return Segment(sequence, None, [(ControlType.CARRIAGE_RETURN,)])


def _up(rows: int) -> list[Segment]:
    return [_control(f"\x1b[{rows}A")] if rows else []


_ERASE_ROW = _control("\x1b[2K")
_ERASE_BELOW = _control("\x1b[J")

_TOKENS = re.compile(r"\n|[^\S\n]+|\S+")


class LineWrapper:
    """Wraps a text to lines of at most `width` cells; with None its lines stay as they are.

    A terminal breaks a line where it is full, even within a word. So a word is held back until its end has arrived, and
    is then written on the line where it fits.

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
