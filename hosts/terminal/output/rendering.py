"""Renders Markdown as lines for a terminal.

Text of a model is never interpreted by the terminal: control characters are removed once more after the Markdown was
read, since its entities can spell them. Line breaks stay where the model made them, and the address of a link is shown
behind its text, because a link whose address is hidden can lead anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from typing_extensions import override

from ....effects.printable import printable
from .blocks import PARSER

Line = list[Segment]
"""A line of a terminal, without its end."""

COLOURS = "ansi_dark"
"""The colours of code: those that the user has chosen for the terminal."""

MAX_CONTEXT = 100
"""How many lines of code are read before a line to colour it: more would take too long while it streams."""

MAX_COLOURED = 500
"""The most characters of a line of code that is coloured."""


def rendered(console: Console, text: str, width: int) -> list[Line]:
    """Return the lines of a text in Markdown, of at most `width` cells, without empty lines around them."""
    lines = _lines(console, _Document(text), width)
    filled = [index for index, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def plain_lines(console: Console, text: str, width: int, style: str = "") -> list[Line]:
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


class CodeColours:
    """Colours the lines of a code block, one after the other."""

    def __init__(self, console: Console, language: str) -> None:
        self._console = console
        self._syntax = Syntax("", language or "text", theme=COLOURS, background_color="default")
        self._is_known = self._syntax.lexer is not None and language not in ("", "text")
        self._context: list[str] = []

    def lines(self, texts: Sequence[str]) -> list[Line]:
        """Return the next lines of the code."""
        shown = [text.expandtabs(4) for text in texts]
        context, self._context = self._context, [*self._context, *shown][-MAX_CONTEXT:]
        if not self._is_known:
            return [self._plain(text) for text in shown]
        coloured = self._syntax.highlight("\n".join([*context, *shown])).split(allow_blank=True)
        found = [*coloured[len(context) :], *map(Text, shown[len(coloured) - len(context) :])]
        return [
            self._plain(text) if len(text) > MAX_COLOURED else list(_cleaned(line.render(self._console)))
            for text, line in zip(shown, found, strict=False)
        ]

    def _plain(self, text: str) -> Line:
        return plain_line(self._console, text, "markdown.code_block")


def plain_line(console: Console, text: str, style: str = "") -> Line:
    """Return a text as one line, however long it is."""
    return list(_cleaned([Segment(text, console.get_style(style) if style else None)]))


# --- Markdown as rich renders it, with a few elements of our own


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Code(CodeBlock):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = str(self.text).rstrip().split("\n")
        for line in CodeColours(console, self.lexer_name).lines(lines):
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
        self.parsed = PARSER.parse(text)
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
