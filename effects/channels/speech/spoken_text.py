"""Removes the markup from a text that is to be spoken. Nobody wants to hear asterisks, or a URL letter by letter.

The markup is Markdown with a little HTML, which models write even if they are asked not to. It is removed line by line,
and what is not markup remains: `snake_case`, 2 * 3, a < b. No pattern spans lines, so the time is proportional to the
length of the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from ...printable import printable

CODE = "There is code to read here."
"""What is said in place of a block of code, unless the application gives another text."""

# The patterns are applied to lines without leading and trailing blanks.
_FENCE = re.compile(r"`{3,}|~{3,}")
_RULE = re.compile(r"(?:[-*_=]\s*){3,}|\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")
"""A horizontal rule, or the line under the heading of a table."""
_DEFINITION = re.compile(r"\[[^\]\n]{1,200}\]:\s+\S.*")
"""The URL of a link that is used elsewhere."""

_QUOTED = re.compile(r"(?:>\s?)+")
_MARKER = re.compile(r"(?:#{1,6}|[-*+•](?:\s+\[[ xX]\])?)\s+")
"""The mark in front of a heading or an item of a list, which is not spoken."""
_NUMBER = re.compile(r"\d{1,9}[.)]\s")
"""The number in front of an item, which is spoken."""
_CLOSING = re.compile(r"\s#+$")
"""The marks behind a heading."""

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


def make_speakable(text: str, code: str = CODE) -> str:
    """The text as a person would read it to somebody; empty if there is nothing to say.

    Links become their words, URLs their host, and rows of tables are separated by commas. Headings and items end with a
    full stop, which makes a pause. `code` stands in place of each block of code. `Pure.`
    """
    lines = (_make_line_speakable(line) for line in _replace_code(printable(text).splitlines(), code))
    return "\n".join(line for line in lines if any(map(str.isprintable, line.strip()))).strip()


def _replace_code(lines: Iterable[str], code: str) -> Iterator[str]:
    """The lines, with `code` in place of each block of code. A block without an end goes on to the end of the text."""
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


def _make_line_speakable(line: str) -> str:
    """A stripped line outside of code without its markup."""
    line = _QUOTED.sub("", line, count=1) if line.startswith(">") else line
    if _RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return ""
    marker = _MARKER.match(line)
    spoken = _remove_inline_markup(_CLOSING.sub("", line[marker.end() :]) if marker else line)
    is_block = bool(marker or _NUMBER.match(line))
    if spoken.startswith("|") or spoken.endswith("|"):
        spoken, is_block = ", ".join(cell.strip() for cell in spoken.split("|") if cell.strip()), True
    return f"{spoken}." if is_block and spoken and not spoken.endswith(_END_OF_SENTENCE) else spoken


def _remove_inline_markup(line: str) -> str:
    line = _IMAGE_OR_LINK.sub(r"\1", line)
    line = _ADDRESS.sub(_host, line)
    line = _TAG.sub("", line)
    line = _EMPHASIS.sub("", _STRUCK.sub("", line))
    return _ESCAPED.sub(r"\1", _ENTITY.sub(lambda entity: html.unescape(entity[0]), line))


def _host(address: re.Match[str]) -> str:
    """The host of a URL, with the punctuation that follows the URL."""
    host, path = address[1], address[2] or ""
    return f"{host}{path[-1]}" if path.endswith(_END_OF_SENTENCE) else host
