"""Reads an answer in Markdown that is still arriving: what of it can be written for good, and how the rest looks for
now.

There are three ways to read on, each a class: text in blocks of Markdown, the lines of a code block, and a block that
is too long to be rendered. Each takes what is complete from the beginning of the text, and says how to read the rest.

A block is a paragraph, a heading, a table, one item of a list, and so on. A complete block does not change any more,
whatever follows, so it can be written once. Only the lines that have ended are considered: `#foo` is a paragraph until
the space arrives that makes it a heading.

Text of a model is never interpreted by the terminal: control characters are removed once more after the Markdown was
read, since its entities can spell them. Line breaks stay where the model made them, and the address of a link is shown
behind its text, because a link whose address is hidden can lead anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme
from typing_extensions import override

from ....effects.printable import printable

Line = list[Segment]
"""A line of a terminal, without its end."""

_MAX_BLOCK = 8_000
"""The most characters of a block that is rendered. A longer one is written as it is: rendering it again with each
piece would take ever longer."""

MAX_LINE = 2_000
"""The most characters of a line within a long block that are held back until the line ends."""

_TAIL = 200
"""How many characters are shown of a line of code that has not ended."""

_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")


class _Taken(NamedTuple):
    """The lines to write for good, the text behind them, and how to read it."""

    lines: list[Line]
    rest: str
    reader: Reader


class Reader(Protocol):
    """A way to read what has arrived of an answer and is not written yet."""

    def take(self, text: str) -> _Taken | None:
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
        if len(text) > _MAX_BLOCK:
            return self.plain(text)
        return _rendered(self.console, text, self.width)

    def plain(self, text: str) -> list[Line]:
        """Return the lines of a text as it is."""
        return _plain_lines(self.console, text.rstrip("\n"), self.width)


class Blocks:
    """Reads text in blocks of Markdown. `gap` says whether a blank line comes before the next one; None, that nothing
    was written yet."""

    def __init__(self, page: Page, gap: bool | None = None) -> None:
        self._page = page
        self._gap = gap

    def take(self, text: str) -> _Taken | None:
        """Take the blocks but the last one, or the first line of a code block."""
        text, gap = self._begin(text)
        blocks = _blocks_of(text[: text.rfind("\n") + 1])
        if len(blocks) > 1:
            lines, reader = self._complete(blocks[:-1], gap)
            return _Taken(lines, text[sum(len(block.text) for block in blocks[:-1]) :], reader)
        if blocks and blocks[0].is_code:
            first, _, rest = text.partition("\n")
            return _Taken(_blank_line(self._gap is not None), rest, _CodeLines(self._page, _Fence.opened_by(first)))
        return _Taken(_blank_line(gap), text, _LongBlock(self._page)) if len(text) > _MAX_BLOCK else None

    def _complete(self, blocks: Iterable[Block], gap: bool) -> tuple[list[Line], Blocks]:
        """Return the lines of complete blocks, and how to read what follows."""
        lines: list[Line] = []
        for block in blocks:
            if block.is_code:
                first, _, rest = block.text.partition("\n")
                code = _CodeLines(self._page, _Fence.opened_by(first)).take(rest)
                lines += [*_blank_line(bool(lines) or self._gap is not None), *(code.lines if code else ())]
            else:
                lines += [*_blank_line(gap), *self._page.block(block.text)]
            gap = block.is_code or _ends_blank(block.text)
        return lines, Blocks(self._page, gap)

    def draft(self, text: str) -> list[Line]:
        """Return the block as it looks if nothing follows."""
        text, gap = self._begin(_without_undecided_line(text))
        return [*_blank_line(gap), *self._page.block(text)] if text else []

    def _begin(self, text: str) -> tuple[str, bool]:
        """Return the text without blank lines at its beginning, and whether a blank line comes before it."""
        blank = _BLANK_LINES.match(text)
        bare = text if blank is None else text[blank.end() :]
        return bare, self._gap is not None and (self._gap or blank is not None)


class _CodeLines:
    """Reads the lines of a code block; each is written for good when it has ended."""

    def __init__(self, page: Page, fence: _Fence) -> None:
        self._page = page
        self._fence = fence
        self._colours = _CodeColours(page.console, fence.language)

    def take(self, text: str) -> _Taken | None:
        """Take the lines that have ended, up to the end of the code block."""
        if "\n" not in text:
            return None
        *ended, rest = text.split("\n")
        for index, line in enumerate(ended):
            if self._fence.is_closed_by(line):
                behind = "\n".join([*ended[index + 1 :], rest])
                return _Taken(self._coloured(ended[:index]), behind, Blocks(self._page, gap=True))
        return _Taken(self._coloured(ended), rest, self)

    def _coloured(self, lines: Iterable[str]) -> list[Line]:
        return self._colours.lines([self._fence.without_indent(line) for line in lines])

    def draft(self, text: str) -> list[Line]:
        """Return the line that has not ended; if it is long, its end."""
        if self._fence.may_be_closed_by(text):
            return []
        shown = text if len(text) <= _TAIL else f"…{text[-_TAIL:]}"
        return [_plain_line(self._page.console, shown.expandtabs(4), "markdown.code_block")]


class _LongBlock:
    """Reads a block that is too long to be rendered, and writes it as it is, up to a blank line outside of code."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._fence: _Fence | None = None

    def take(self, text: str) -> _Taken | None:
        """Take the lines that have ended, up to the end of the block, and the full rows of a very long line."""
        lines: list[Line] = []
        while "\n" in text:
            line, _, text = text.partition("\n")
            if not line.strip() and self._fence is None:
                return _Taken(lines, text, Blocks(self._page, gap=True))
            lines += self._page.plain(line) or [[]]
            self._follow_fence(line.lstrip())
        if len(text) > MAX_LINE:
            *full, last = self._page.plain(text)
            spaces = text[len(text.rstrip(" ")) :]
            lines, text = lines + full, "".join(segment.text for segment in last) + spaces
        return _Taken(lines, text, self) if lines else None

    def draft(self, text: str) -> list[Line]:
        """Return the line that has not ended."""
        return self._page.plain(text) if text else []

    def _follow_fence(self, line: str) -> None:
        if self._fence is not None:
            self._fence = None if self._fence.is_closed_by(line) else self._fence
        elif line.startswith(("```", "~~~")):
            self._fence = _Fence.opened_by(line)


def _ends_blank(text: str) -> bool:
    return not text.rstrip("\n").rpartition("\n")[2].strip() or text.endswith("\n\n")


def _blank_line(wanted: bool) -> list[Line]:
    return [[]] if wanted else []


_PARSER = (
    MarkdownIt("commonmark").enable(["strikethrough", "table"]).disable(["html_block", "html_inline", "reference"])
)
"""Reads Markdown. HTML and definitions of links stay as they were written, because nothing of a text may disappear."""

_BLOCKS = MarkdownIt("commonmark").enable("table").disable(["html_block", "reference", "inline"])
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_LISTS = {"bullet_list_open", "ordered_list_open"}
_UNDECIDED = re.compile(r"[-=+*_#>`~|:.)\s\d]*")
"""A line of which only the beginning is known, and which may still become a heading, a list item, a fence or a rule."""


class Block(NamedTuple):
    """A block: the text from its first line to the first line of the next block, and whether it is a code block
    between fences."""

    text: str
    is_code: bool


def _blocks_of(text: str) -> list[Block]:
    """Return the blocks of a text, in order; together they are the text from its first line that is not blank.

    The last one may not be complete. `Pure.`
    """
    lines = _LINE.findall(text)
    starts = list(_starts(text))
    ends = [*(start for start, _ in starts[1:]), len(lines)]
    return [Block("".join(lines[start:end]), is_code) for (start, is_code), end in zip(starts, ends, strict=False)]


def _starts(text: str) -> Iterator[tuple[int, bool]]:
    """Yield for each block the index of its first line, and whether it is a code block between fences."""
    for token in _BLOCKS.parse(text):
        is_block = token.level == 0 and token.type not in _LISTS
        is_item = token.level == 1 and token.type == "list_item_open"
        if token.map is not None and token.nesting >= 0 and (is_block or is_item):
            yield token.map[0], token.type == "fence"


def _without_undecided_line(text: str) -> str:
    """Return the text without its last line if that line has not ended and says nothing yet. `Pure.`

    Shown at once, the `-` of a list item would turn the paragraph above it into a heading for a moment.
    """
    last = text.rpartition("\n")[2]
    return text[: len(text) - len(last)] if _UNDECIDED.fullmatch(last) else text


_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)")


class _Fence(NamedTuple):
    """The line that begins a code block: its indent, the marker that ends the block, and the language, if it names
    one."""

    indent: str
    marker: str
    language: str

    @classmethod
    def opened_by(cls, line: str) -> _Fence:
        """Return the fence that this line opens. `Pure.`"""
        match = _FENCE.match(line)
        return cls("", "```", "") if match is None else cls(match[1], match[2], match[3])

    def is_closed_by(self, line: str) -> bool:
        """Return whether this line ends the code block. `Pure.`"""
        bare = line.strip()
        is_marker = len(bare) >= len(self.marker) and not bare.strip(self.marker[0])
        return is_marker and len(line) - len(line.lstrip(" ")) <= 3

    def without_indent(self, line: str) -> str:
        """Return a line of the code block without the indent of its fence. `Pure.`"""
        return line[min(len(self.indent), len(line) - len(line.lstrip(" "))) :]

    def may_be_closed_by(self, begun: str) -> bool:
        """Return whether a line that begins like this may end the code block. `Pure.`"""
        return not begun.strip().strip(self.marker[0])


_COLOURS = "ansi_dark"
"""The colours of code: those that the user has chosen for the terminal."""

_MAX_CONTEXT = 100
"""How many lines of code are read before a line to colour it: more would take too long while it streams."""

_MAX_COLOURED = 500
"""The most characters of a line of code that is coloured."""


def _rendered(console: Console, text: str, width: int) -> list[Line]:
    """Return the lines of a text in Markdown, of at most `width` cells, without empty lines around them."""
    lines = _lines(console, _Document(text), width)
    filled = [index for index, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _plain_lines(console: Console, text: str, width: int, style: str = "") -> list[Line]:
    """Return the lines of a text as it is, of at most `width` cells."""
    return _lines(console, Text(text, style=style), width)


def _lines(console: Console, renderable: Text | Markdown, width: int) -> list[Line]:
    options = console.options.update(width=width, height=None)
    lines = console.render_lines(renderable, options, pad=False, new_lines=False)
    return [_trimmed(_cleaned(line)) for line in lines]


def _cleaned(line: Iterable[Segment]) -> Iterator[Segment]:
    for segment in line:
        if not segment.control and (text := printable(segment.text).replace("\n", "")):
            yield Segment(text, segment.style)


def _trimmed(line: Iterable[Segment]) -> Line:
    """Return the line without spaces at its end, so that it is not copied with them, nor wrapped because of them."""
    kept = list(line)
    while kept and not kept[-1].text.strip() and not (kept[-1].style and kept[-1].style.underline):
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(" "), kept[-1].style)
    return kept


class _CodeColours:
    """Colours the lines of a code block, one after the other."""

    def __init__(self, console: Console, language: str) -> None:
        self._console = console
        self._syntax = Syntax("", language or "text", theme=_COLOURS, background_color="default")
        self._is_known = self._syntax.lexer is not None and language not in ("", "text")
        self._context: list[str] = []

    def lines(self, texts: Sequence[str]) -> list[Line]:
        """Return the next lines of the code."""
        shown = [text.expandtabs(4) for text in texts]
        context, self._context = self._context, [*self._context, *shown][-_MAX_CONTEXT:]
        if not self._is_known:
            return [self._plain(text) for text in shown]
        coloured = self._syntax.highlight("\n".join([*context, *shown])).split(allow_blank=True)
        found = [*coloured[len(context) :], *map(Text, shown[len(coloured) - len(context) :])]
        return [
            self._plain(text) if len(text) > _MAX_COLOURED else list(_cleaned(line.render(self._console)))
            for text, line in zip(shown, found, strict=False)
        ]

    def _plain(self, text: str) -> Line:
        return _plain_line(self._console, text, "markdown.code_block")


def _plain_line(console: Console, text: str, style: str = "") -> Line:
    """Return a text as one line, however long it is."""
    return list(_cleaned([Segment(text, console.get_style(style) if style else None)]))


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Code(CodeBlock):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = str(self.text).rstrip().split("\n")
        for line in _CodeColours(console, self.lexer_name).lines(lines):
            yield Text.assemble(*((segment.text, segment.style or "") for segment in line))


class _Item(ListItem):
    @override
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._behind("• ", console, options)

    @override
    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        return self._behind(f"{number}. ".rjust(len(str(last_number - 1)) + 2), console, options)

    def _behind(self, mark: str, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the item behind its mark."""
        width = max(1, options.max_width - len(mark))
        lines = console.render_lines(self.elements, options.update(width=width), style=self.style)
        mark_style = console.get_style("markdown.item.number")
        for index, line in enumerate(lines):
            yield Segment(mark if index == 0 else " " * len(mark), mark_style)
            yield from line
            yield Segment.line()


class _Rule(HorizontalRule):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, style="markdown.hr")


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
        "list_item_open": _Item,
        "hr": _Rule,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _PARSER.parse(text)
        for token in self.parsed:
            if token.children:
                token.children = list(_shown(token.children))


def _shown(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the parts of a paragraph with line breaks kept, and with addresses as text behind links and images."""
    address, said = "", ""
    for token in tokens:
        if token.type == "link_open":
            address, said = str(token.attrs.get("href", "")), ""
        elif token.type == "link_close":
            yield from _text(f" ({address})" if address != said else "")
        elif token.type == "image":
            said += token.content
            yield from _text(f"{token.content} ({token.attrs.get('src', '')})".lstrip())
        else:
            said += token.content
            token.type = "hardbreak" if token.type == "softbreak" else token.type
            yield token


def _text(content: str) -> Iterator[Token]:
    if content:
        yield Token("text", "", 0, content=content)


# The styles set no background, because nothing is known about that of the terminal.
THEME = Theme({
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.block_quote": "italic",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold italic",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.item.number": "bold",
})  # fmt: skip
