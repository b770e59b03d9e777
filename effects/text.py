"""Makes JSON of models and tools fit to be stored, and texts fit to be shown.

`states.values.surrogates` says why lone surrogates are replaced; JSON text can also hold them as escapes.

Texts can hold control characters, which a terminal would execute: they clear the screen, change its title, or
enter commands. They are removed from what people read.
"""

from __future__ import annotations

import json
import re
import unicodedata

from ..states.values.surrogates import encodable

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""One escape in JSON text: a pair of surrogates, a lone surrogate (the group), or any other."""

_KEPT = {"\n", "\t"}

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""A control sequence of a terminal: colours and the like, titles and links."""

_REORDERING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that make a terminal show text in another order than it is stored."""


def encodable_json(text: str) -> str:
    """Return JSON text with each lone surrogate replaced, also where it is written as an escape. `Pure.`"""
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape[1] else escape[0], encodable(text))


def is_encodable(value: object) -> bool:
    """Return whether a JSON value has no lone surrogate at any depth. `Pure.`"""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


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
