"""Texts of models and tools, made fit to be stored and shown.

A model that breaks off in the middle of an emoji leaves half a character behind (a lone surrogate). No database and
no provider takes such a text, so the half is replaced by U+FFFD, the sign for "there was something here".

They can also hold control characters, and a terminal obeys them: it clears the screen, changes its title, types for the
user. For people these are taken out.
"""

from __future__ import annotations

import json
import re
import unicodedata

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""One escape in JSON text: a pair of surrogates, a lone one (the group), or any other."""

_KEPT = {"\n", "\t"}

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""What a terminal takes as one command: colours and the like, titles and links."""

_REORDERING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Marks that make a terminal show text in another order than it stands."""


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD. `Pure.`"""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encodable_json(text: str) -> str:
    """JSON text with each lone surrogate replaced, be it written out or as an escape. `Pure.`"""
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape[1] else escape[0], encodable(text))


def is_encodable(value: object) -> bool:
    """Whether a JSON value, however deep, has no lone surrogate. `Pure.`"""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text without control characters and sequences, but with its lines and tabs. `Pure.`"""
    return "".join(map(_shown, _SEQUENCE.sub("", text).replace("\r\n", "\n")))


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    return "" if category == "Cc" or character in _REORDERING else character
