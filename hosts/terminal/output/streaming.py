"""Reads an answer that is still arriving: what of it can be written for good, and how the rest looks for now.

There are three ways to read on, each a class: text in blocks of Markdown, the lines of a code block, and a block that
is too long to be rendered. Each takes what is complete from the beginning of the text, and says how to read the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rich.console import Console

from .blocks import Block, blocks_of, without_undecided_line
from .fences import Fence
from .rendering import CodeColours, Line, plain_line, plain_lines, rendered

MAX_BLOCK = 8_000
"""The most characters of a block that is rendered. A longer one is written as it is: rendering it again with each
piece would take ever longer."""

MAX_LINE = 2_000
"""The most characters of a line within a long block that are held back until the line ends."""

_TAIL = 200
"""How many characters are shown of a line of code that has not ended."""

_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")


class Taken(NamedTuple):
    """The lines to write for good, the text behind them, and how to read it."""

    lines: list[Line]
    rest: str
    reader: Reader


class Reader(Protocol):
    """A way to read what has arrived of an answer and is not written yet."""

    def take(self, text: str) -> Taken | None:
        """Take from the beginning of the text what is complete, or return None if nothing is."""
        ...

    def draft(self, text: str) -> list[Line]:
        """Return how the text looks for now, of which nothing is complete."""
        ...


@dataclass(frozen=True)
class Page:
    """What answers are rendered for: a console, and the most cells of a line of text."""

    console: Console
    max_width: int

    @property
    def width(self) -> int:
        """The number of cells of a line of text. It changes when the user resizes the terminal."""
        return min(self.console.width, self.max_width)

    def block(self, text: str) -> list[Line]:
        """Return the lines of a block of Markdown."""
        if len(text) > MAX_BLOCK:
            return self.plain(text)
        return rendered(self.console, text, self.width)

    def plain(self, text: str) -> list[Line]:
        """Return the lines of a text as it is."""
        return plain_lines(self.console, text.rstrip("\n"), self.width)


class Blocks:
    """Reads text in blocks of Markdown. `gap` says whether a blank line comes before the next one; None, that nothing
    was written yet."""

    def __init__(self, page: Page, gap: bool | None = None) -> None:
        self._page = page
        self._gap = gap

    def take(self, text: str) -> Taken | None:
        """Take the blocks but the last one, or the first line of a code block."""
        text, gap = self._begin(text)
        blocks = blocks_of(text[: text.rfind("\n") + 1])
        if len(blocks) > 1:
            lines, reader = self._complete(blocks[:-1], gap)
            return Taken(lines, text[sum(len(block.text) for block in blocks[:-1]) :], reader)
        if blocks and blocks[0].is_code:
            first, _, rest = text.partition("\n")
            return Taken(_blank_line(self._gap is not None), rest, CodeLines(self._page, Fence.opened_by(first)))
        return Taken(_blank_line(gap), text, LongBlock(self._page)) if len(text) > MAX_BLOCK else None

    def _complete(self, blocks: Iterable[Block], gap: bool) -> tuple[list[Line], Blocks]:
        """Return the lines of complete blocks, and how to read what follows."""
        lines: list[Line] = []
        for block in blocks:
            if block.is_code:
                first, _, rest = block.text.partition("\n")
                code = CodeLines(self._page, Fence.opened_by(first)).take(rest)
                lines += [*_blank_line(bool(lines) or self._gap is not None), *(code.lines if code else ())]
            else:
                lines += [*_blank_line(gap), *self._page.block(block.text)]
            gap = block.is_code or _ends_blank(block.text)
        return lines, Blocks(self._page, gap)

    def draft(self, text: str) -> list[Line]:
        """Return the block as it looks if nothing follows."""
        text, gap = self._begin(without_undecided_line(text))
        return [*_blank_line(gap), *self._page.block(text)] if text else []

    def _begin(self, text: str) -> tuple[str, bool]:
        """Return the text without blank lines at its beginning, and whether a blank line comes before it."""
        blank = _BLANK_LINES.match(text)
        bare = text if blank is None else text[blank.end() :]
        return bare, self._gap is not None and (self._gap or blank is not None)


class CodeLines:
    """Reads the lines of a code block; each is written for good when it has ended."""

    def __init__(self, page: Page, fence: Fence) -> None:
        self._page = page
        self._fence = fence
        self._colours = CodeColours(page.console, fence.language)

    def take(self, text: str) -> Taken | None:
        """Take the lines that have ended, up to the end of the code block."""
        if "\n" not in text:
            return None
        *ended, rest = text.split("\n")
        for index, line in enumerate(ended):
            if self._fence.is_closed_by(line):
                behind = "\n".join([*ended[index + 1 :], rest])
                return Taken(self._coloured(ended[:index]), behind, Blocks(self._page, gap=True))
        return Taken(self._coloured(ended), rest, self)

    def _coloured(self, lines: Iterable[str]) -> list[Line]:
        return self._colours.lines([self._fence.without_indent(line) for line in lines])

    def draft(self, text: str) -> list[Line]:
        """Return the line that has not ended; if it is long, its end."""
        if self._fence.may_be_closed_by(text):
            return []
        shown = text if len(text) <= _TAIL else f"…{text[-_TAIL:]}"
        return [plain_line(self._page.console, shown.expandtabs(4), "markdown.code_block")]


class LongBlock:
    """Reads a block that is too long to be rendered, and writes it as it is, up to a blank line outside of code."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._fence: Fence | None = None

    def take(self, text: str) -> Taken | None:
        """Take the lines that have ended, up to the end of the block, and the full rows of a very long line."""
        lines: list[Line] = []
        while "\n" in text:
            line, _, text = text.partition("\n")
            if not line.strip() and self._fence is None:
                return Taken(lines, text, Blocks(self._page, gap=True))
            lines += self._page.plain(line) or [[]]
            self._follow_fence(line.lstrip())
        if len(text) > MAX_LINE:
            *full, last = self._page.plain(text)
            spaces = text[len(text.rstrip(" ")) :]
            lines, text = lines + full, "".join(segment.text for segment in last) + spaces
        return Taken(lines, text, self) if lines else None

    def draft(self, text: str) -> list[Line]:
        """Return the line that has not ended."""
        return self._page.plain(text) if text else []

    def _follow_fence(self, line: str) -> None:
        if self._fence is not None:
            self._fence = None if self._fence.is_closed_by(line) else self._fence
        elif line.startswith(("```", "~~~")):
            self._fence = Fence.opened_by(line)


def _ends_blank(text: str) -> bool:
    return not text.rstrip("\n").rpartition("\n")[2].strip() or text.endswith("\n\n")


def _blank_line(wanted: bool) -> list[Line]:
    return [[]] if wanted else []
