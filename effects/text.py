"""Texts of models and tools, made fit to be stored and shown.

A model that breaks off in the middle of an emoji leaves half a character behind (a lone surrogate). No database and
no provider takes such a text, so the half is replaced by U+FFFD, the sign for "there was something here".
"""

from __future__ import annotations

import json
import re

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""One escape in JSON text: a pair of surrogates, a lone one (the group), or any other."""


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
