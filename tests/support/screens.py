"""A terminal in memory: what a user sees of the output of a program, and what they find when they scroll back.

It knows the sequences that the command writes, and fails at any other, so that a new one is noticed.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1b[=>78]|(.)", re.DOTALL)


class FakeScreen:
    """Executes output as a terminal of so many columns and rows would. Feed it with `write`."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns = columns
        self.rows = rows
        self.scrolled: list[list[str]] = []
        self._grid: list[list[str]] = [[] for _ in range(rows)]
        self._row = self._column = 0

    def write(self, output: str) -> None:
        """Execute the output of a program."""
        for match in _TOKEN.finditer(output):
            if match[3]:
                self._control(match[1], match[2], match[3])
            elif match[4]:
                self._put(match[4])

    @property
    def text(self) -> str:
        """What was written, with what has scrolled away; without spaces at the ends of lines and below the last."""
        lines = ["".join(cells).rstrip() for cells in (*self.scrolled, *self._grid)]
        return "\n".join(lines).rstrip()

    @property
    def shown(self) -> list[str]:
        """The rows that are on the screen."""
        return ["".join(cells).rstrip() for cells in self._grid]

    def _put(self, character: str) -> None:
        if character == "\n":
            self._column = 0  # as the driver of a terminal turns it into a line end
            self._down()
        elif character == "\r":
            self._column = 0
        elif character in "\x07\x08":
            self._column = max(0, self._column - (character == "\x08"))
        else:
            assert character >= " ", f"an unknown control character: {character!r}"
            self._print(character)

    def _print(self, character: str) -> None:
        cells = cell_len(character)
        if self._column + cells > self.columns:
            self._column = 0
            self._down()
        row = self._grid[self._row]
        row.extend([" "] * (self._column + cells - len(row)))
        row[self._column : self._column + cells] = [character, *[""] * (cells - 1)] if cells else []
        self._column += cells

    def _down(self) -> None:
        if self._row < self.rows - 1:
            self._row += 1
            return
        self.scrolled.append(self._grid.pop(0))
        self._grid.append([])

    def _control(self, private: str, numbers: str, kind: str) -> None:
        number = int(numbers.split(";")[0] or 0)
        if kind in "ABCD":
            self._move(kind, number or 1)
        elif kind in "JK":
            self._erase(kind, number)
        else:
            # colours, modes, and the question where the cursor is
            assert kind in "mhln", f"an unknown sequence: {private}{numbers}{kind}"

    def _move(self, kind: str, number: int) -> None:
        assert kind != "A" or number <= self._row, "the cursor cannot leave the screen"
        self._row += {"A": -number, "B": min(number, self.rows - 1 - self._row)}.get(kind, 0)
        self._column += {"C": number, "D": -number}.get(kind, 0)
        self._column = min(max(0, self._column), self.columns - 1)

    def _erase(self, kind: str, number: int) -> None:
        row = self._grid[self._row]
        if number == 2:
            assert kind == "K", "nothing erases the whole screen"
            row.clear()
            return
        del row[self._column :]
        for below in self._grid[self._row + 1 :] if kind == "J" else ():
            below.clear()
