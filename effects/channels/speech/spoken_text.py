"""Text without its markup, to be read aloud: nobody wants to hear asterisks, or an address letter by letter.

The markup is Markdown and the little HTML that stands in it, since that is what models write, also where they were
asked not to (case S20). It is taken out plainly, line by line, and what is no markup stays: `snake_case`, 2 * 3, a < b.
Nothing is looked for in pairs across the text, so that the time it takes grows with the length of the text only.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from ...text import printable

CODE = "There is code to read here."
"""What is said in place of a block of code, unless a host has other words for it."""

# Lines are stripped before they are looked at.
_FENCE = re.compile(r"`{3,}|~{3,}")
_RULE = re.compile(r"(?:[-*_=]\s*){3,}|\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")
"""A line across the page, or the one under the heads of a table."""
_DEFINITION = re.compile(r"\[[^\]\n]{1,200}\]:\s+\S.*")
"""The address of a link that stands elsewhere."""

_QUOTED = re.compile(r"(?:>\s?)+")
_MARKER = re.compile(r"(?:#{1,6}|[-*+•](?:\s+\[[ xX]\])?)\s+")
"""What stands before a heading or an item of a list, and is not said."""
_NUMBER = re.compile(r"\d{1,9}[.)]\s")
"""What stands before an item, and is said."""
_CLOSING = re.compile(r"\s#+$")
"""What may stand behind a heading."""

_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]\n]*)\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?(?:\s+\"[^\"\n]*\")?\)|\[[^\[\]\n]*\])"
)
_ADDRESS = re.compile(r"<?\b(?:https?://|www\.)(?:www\.)?([^\s/?#<>()\"'`]+)([/?#][^\s<>()\"'`]*)?>?")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,500}>|<!--[^\n]{0,500}?-->")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,31}|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_EMPHASIS = re.compile(
    r"(?<![\w*\\])\*{1,3}(?=[^\s*])|(?<=[^\s*\\])\*{1,3}(?![\w*])"
    r"|(?<![\w\\])_{1,3}(?=[^\W_])|(?<=[^\W_])_{1,3}(?!\w)"
)
_STRUCK = re.compile(r"~~|`+")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_END_OF_SENTENCE = (".", "!", "?", ":", ";", ",", "…", "。", "\uff01", "\uff1f")


def speakable(text: str, code: str = CODE) -> str:
    """The text as one would read it to somebody: links by their words, addresses by their host, rows of tables with
    commas, a pause behind headings and items, and `code` in place of each block of code. Empty if there is nothing to
    say. `Pure.`"""
    lines = (_spoken(line) for line in _without_code(printable(text).splitlines(), code))
    return "\n".join(line for line in lines if any(map(str.isprintable, line.strip()))).strip()


def _without_code(lines: Iterable[str], code: str) -> Iterator[str]:
    """The lines outside of blocks of code. A block that nobody ends goes on to the end of the text."""
    fence = ""
    for line in map(str.strip, lines):
        found = _FENCE.match(line)
        if fence:
            if found and found[0].startswith(fence) and found.end() == len(line):
                fence = ""
        elif found:
            fence = found[0]
            yield code
        else:
            yield line


def _spoken(line: str) -> str:
    """One line outside of code, stripped."""
    line = _QUOTED.sub("", line, count=1) if line.startswith(">") else line
    if _RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return ""
    marker = _MARKER.match(line)
    spoken = _words(_CLOSING.sub("", line[marker.end() :]) if marker else line)
    is_block = bool(marker or _NUMBER.match(line))
    if spoken.startswith("|") or spoken.endswith("|"):
        spoken, is_block = ", ".join(cell.strip() for cell in spoken.split("|") if cell.strip()), True
    return f"{spoken}." if is_block and spoken and not spoken.endswith(_END_OF_SENTENCE) else spoken


def _words(line: str) -> str:
    line = _IMAGE_OR_LINK.sub(r"\1", line)
    line = _ADDRESS.sub(_host, line)
    line = _TAG.sub("", line)
    line = _EMPHASIS.sub("", _STRUCK.sub("", line))
    return _ESCAPED.sub(r"\1", _ENTITY.sub(lambda entity: html.unescape(entity[0]), line))


def _host(address: re.Match[str]) -> str:
    """Of an address only the host, and the end of the sentence if it stands there."""
    host, path = address[1], address[2] or ""
    return f"{host}{path[-1]}" if path.endswith(_END_OF_SENTENCE) else host
