"""Text that may be put on a screen.

What models, tools and files say can hold control characters, and a terminal obeys them: it clears the screen, changes
its title, types for the user. Here they are taken out.
"""

from __future__ import annotations

import re
import unicodedata

_PAYLOAD = re.compile(r"(data:image/[a-z]+;base64,)[A-Za-z0-9+/]+=*")

_KEPT = {"\n", "\t"}

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""What a terminal takes as one command: colours and the like, titles and links."""

_REORDERING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Marks that make a terminal show text in another order than it stands."""


def printable(text: str) -> str:
    """The text without control characters and sequences, but with its lines and tabs. `Pure.`"""
    return "".join(map(_shown, _SEQUENCE.sub("", text).replace("\r\n", "\n")))


def one_line(text: str, width: int | None = None) -> str:
    """The text on one line, cut off with an ellipsis at `width` characters if one is given. `Pure.`"""
    line = " ".join(printable(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def with_images(text: str, count: int) -> str:
    """The text, under a line that tells of the images that came with it. `Pure.`"""
    if not count:
        return text
    sign = "[image]" if count == 1 else f"[{count} images]"
    return f"{sign}\n{text}" if text.strip() else sign


def without_payloads(text: str) -> str:
    """The text with the images left out that it holds as `data:` URLs. `Pure.`"""
    return _PAYLOAD.sub(r"\1…", text)


def counted(number: int, noun: str) -> str:
    """So many of them: "1 turn", "2 turns". `Pure.`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category == "Cc" or character in _REORDERING else character
