"""Lines at the end of a terminal's output that are drawn again while they change.

Only the lines that differ from what is drawn are written, so nothing flickers. Lines that are settled are never written
again; they scroll away like any other output. The cursor stays at the end of the last line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.segment import ControlType, Segment, Segments

from .rendering import Line


class RedrawnLines:
    """The lines of one answer on a terminal: those that are settled, and behind them those that are drawn again."""

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
        return sum(rows_of("".join(segment.text for segment in line), self._console.width) for line in lines)

    def _write(self, segments: Sequence[Segment]) -> None:
        self._console.print(Segments(segments), end="", soft_wrap=True)


def _common(lines: Sequence[Line], others: Sequence[Line]) -> int:
    """Return how many lines are the same at the beginning of both."""
    for index, (line, other) in enumerate(zip(lines, others, strict=False)):
        if line != other:
            return index
    return min(len(lines), len(others))


def rows_of(text: str, width: int) -> int:
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
