"""Makes texts fit to be shown.

Texts of models, tools and users can hold control characters, which a terminal would execute: they clear the screen,
change its title, or enter commands. They are removed from what people read.
"""

from __future__ import annotations

import re
import unicodedata

_KEPT = {"\n", "\t"}

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""A control sequence of a terminal: colours and the like, titles and links."""

_REORDERING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that make a terminal show text in another order than it is stored."""


def printable(text: str) -> str:
    """Return the text without control characters and sequences; line breaks and tabs stay. `Pure.`"""
    return "".join(map(_shown, _SEQUENCE.sub("", text).replace("\r\n", "\n")))


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category == "Cc" or character in _REORDERING else character
