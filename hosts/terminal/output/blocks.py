"""Divides Markdown that is still arriving into blocks: those that are complete, and the rest.

A block is a paragraph, a heading, a table, one item of a list, and so on. A complete block does not change any more,
whatever follows, so it can be written once. Only the lines that have ended are considered: `#foo` is a paragraph until
the space arrives that makes it a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark").enable(["strikethrough", "table"]).disable(["html_block", "html_inline", "reference"])
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


def blocks_of(text: str) -> list[Block]:
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


def without_undecided_line(text: str) -> str:
    """Return the text without its last line if that line has not ended and says nothing yet. `Pure.`

    Shown at once, the `-` of a list item would turn the paragraph above it into a heading for a moment.
    """
    last = text.rpartition("\n")[2]
    return text[: len(text) - len(last)] if _UNDECIDED.fullmatch(last) else text
