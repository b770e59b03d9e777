"""Finds JSON Web Tokens (RFC 7519)."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator

from ..rule import SecretSpan
from .line_breaks import find_across_lines

_TOKEN = re.compile(r"(?<![\w-])(?P<head>eyJ[\w-]{4,}+)\.[\w-]{4,}+(?:\.[\w-]*+){0,3}")


def find_web_tokens(text: str) -> Iterator[SecretSpan]:
    """Yield the web tokens in a text, also those that the end of a line has broken in two."""
    if "eyJ" in text:
        yield from _find(text)
        if "\n" in text:
            yield from find_across_lines(text, _find)


def _find(text: str) -> Iterator[SecretSpan]:
    for match in _TOKEN.finditer(text):
        if _is_head(match["head"]):
            end = match.end() - (match[0].endswith("."))
            yield SecretSpan(match.start(), end, "JWT")


def _is_head(head: str) -> bool:
    """Whether the first part of a token is a JSON object that names an algorithm."""
    try:
        decoded = json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and bool(decoded.keys() & {"alg", "typ", "enc", "kid"})
