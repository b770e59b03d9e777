"""Draws an answer of a model on a terminal, rendered as Markdown while it streams.

A block that is complete, such as a paragraph or a list, does not change any more. So it is written once, and the
scrollback holds the answer as it reads. Only the last block is drawn again, and of it only the lines that differ.

The terminal interprets nothing of a model's text: control characters are removed once more after the Markdown was read,
since its entities can spell them. HTML is shown as text, and the address of a link stands behind it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from time import perf_counter
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import ControlType, Segment, Segments
from rich.syntax import Syntax
from rich.theme import Theme
from typing_extensions import override

from ....effects.printable import printable

THEME = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"})  # without rich's black background

_MAX_BLOCK = 4_000
"""The most characters that are rendered as one block: rendering a longer one with each piece would take ever longer."""

_PAUSE, _PAUSE_PER_SECOND = 0.04, 5  # seconds at least between two drawings, and for each second that one took

_UNDECIDED = re.compile(r"[-=+*_#>`~|:.)\s\d]*")  # shown at once, it could make a heading of the paragraph above it

_Line = list[Segment]
"""A line of the answer, without its end. One that is longer than the terminal is wide takes several rows."""


class StreamedAnswer:
    """Shows one answer as its pieces arrive; `max_width` is the most cells of a line of text.

    Call `finish` or `discard` when there are no more pieces, before anything else writes to the terminal.
    """

    def __init__(self, console: Console, max_width: int) -> None:
        self._console = console
        self._max_width = max_width
        self._rest = ""  # what is not settled: the last block, or the end of it
        self._gap = False  # whether a blank line comes before the rest
        self._settled: list[_Line] = []  # written for good
        self._drawn: list[_Line] = []  # drawn again while they change; the cursor stays below them
        self._next_drawing = 0.0
        self._is_waiting = False

    def feed(self, text: str) -> None:
        """Add a piece of the answer. It is shown now, or a moment later."""
        self._rest += text
        pause = self._next_drawing - perf_counter()
        if pause > 0 and not self._is_waiting:
            with suppress(RuntimeError):  # where no event loop runs, the piece is drawn now
                asyncio.get_running_loop().call_later(pause, self._draw)
                self._is_waiting = True
        if not self._is_waiting:
            self._draw()

    def finish(self) -> None:
        """Write the rest of the answer, and end its last line."""
        self._rest = self._rest.removesuffix("\n") + "\n"
        self._write([*self._take_complete(), *self._spaced(self._rest)])
        self._rest = ""

    def discard(self) -> bool:
        """Take the answer back, and return True; return False if some of it has left the screen already."""
        self._rest = ""
        fits = self._rows([*self._settled, *self._drawn]) < self._console.height
        if fits:
            self._settled, self._drawn = [], [*self._settled, *self._drawn]
        self._write([])
        return fits

    def _draw(self) -> None:
        self._is_waiting = False
        begun = perf_counter()
        complete, last = self._take_complete(), self._rest.rpartition("\n")[2]
        self._write(complete, self._spaced(self._rest.removesuffix(last if _UNDECIDED.fullmatch(last) else "")))
        ended = perf_counter()
        self._next_drawing = ended + max(_PAUSE, (ended - begun) * _PAUSE_PER_SECOND)

    def _take_complete(self) -> list[_Line]:
        """Take what is complete from the text that is not settled, and return its lines."""
        lines: list[_Line] = []
        *complete, (self._rest, _) = _parts_of(self._rest)
        for text, ends_block in complete:
            lines += self._spaced(text)
            self._gap = ends_block
        return lines

    def _spaced(self, text: str) -> list[_Line]:
        lines = _rendered(self._console, text, min(self._console.width, self._max_width))
        return [[], *lines] if lines and self._gap else lines

    def _write(self, settled: Sequence[_Line], draft: Sequence[_Line] = ()) -> None:
        """Replace what is drawn by lines that are written for good, and behind them the last lines of a draft that fit
        the screen. Only lines that differ are written."""
        shown = list(draft[-self._console.height :])
        while self._rows(shown) >= self._console.height:
            shown.pop(0)
        lines = [*settled, *shown]
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(lines, self._drawn, strict=False))))
        upwards = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * self._rows(self._drawn[same:])
        with self._console:  # in one piece, so that nothing flickers
            self._console.control(Control(*upwards))
            ended = [segment for line in lines[same:] for segment in (*line, Segment.line())]
            self._console.print(Segments(ended), end="", soft_wrap=True)
        self._settled += settled
        self._drawn = shown

    def _rows(self, lines: Iterable[_Line]) -> int:
        """Return how many rows these lines take on the terminal, as wide as it is now."""
        texts = ("".join(segment.text for segment in line) for line in lines)
        return sum(len(chop_cells(text, self._console.width)) or 1 for text in texts)


_PARSER = MarkdownIt("commonmark").enable(["strikethrough", "table"])
_PARSER.disable(["html_block", "html_inline", "reference", "image", "autolink"])  # so that nothing of a text disappears


def _parts_of(text: str) -> list[tuple[str, bool]]:
    """Return the blocks of a text, those that are too long in parts, and whether the block ends with the part. A line
    that has not ended belongs to the last one: `#foo` is a paragraph until the space comes that makes it a heading."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    tokens = _PARSER.parse(text[: text.rfind("\n") + 1])
    blocks = [(token.map[0], token.type) for token in tokens if token.map and not token.level] or [(0, "")]
    parts = list[tuple[str, bool]]()
    for (start, kind), end in zip(blocks, [*(start for start, _ in blocks[1:]), len(lines)], strict=True):
        behind_head = start + {"fence": 1, "table_open": 2}.get(kind, 0)
        head = "".join(lines[start:behind_head])  # each part of code begins with its fence
        *cut, last = _cut("".join(lines[behind_head:end]))
        parts += [*((head + part, False) for part in cut), (head + last, True)]
    return parts


def _cut(text: str) -> Iterator[str]:
    while len(text) > _MAX_BLOCK:
        unindented = max((match.end() for match in re.finditer(r"\n(?=\S)", text[:_MAX_BLOCK])), default=0)
        end = unindented or text.rfind("\n", 0, _MAX_BLOCK) + 1 or text.rfind(" ", 0, _MAX_BLOCK) + 1 or _MAX_BLOCK
        yield text[:end]
        text = text[end:]
    yield text


class _Code(CodeBlock):
    """Code without a margin, so that it is copied as it is."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if code := str(self.text).removesuffix("\n"):
            yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True)


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = {}  # at the left: in the middle a heading would move with each piece of it


class _Document(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = _PARSER.parse(text)
        for child in (child for token in self.parsed for child in token.children or ()):
            if child.type == "softbreak":  # line breaks stay where the model made them
                child.type = "hardbreak"


def _rendered(console: Console, text: str, width: int) -> list[_Line]:
    """Return the lines of a block. Those of code are not broken, so that they are copied as they are."""
    document = _Document(text)
    is_code = [token.type for token in document.parsed] == ["fence"]
    longest = max(map(cell_len, text.expandtabs(4).split("\n"))) + 1
    options = console.options.update(width=longest if is_code else width, height=None)
    lines = [_cleaned(line) for line in Segment.split_lines(console.render(document, options))]
    filled = [index for index, line in enumerate(lines) if line or is_code]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _cleaned(line: Iterable[Segment]) -> _Line:
    """Return a line without control characters, and without the spaces at its end, which would be copied."""
    kept = [Segment(printable(segment.text), segment.style) for segment in line if not segment.control]
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(" "), kept[-1].style)] if kept else []
