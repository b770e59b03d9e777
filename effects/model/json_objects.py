"""Finds JSON objects in the text of a model.

Models that are asked for one JSON object write it between code fences and sentences, or write several. So the text is
searched, and the reader of an answer decides which object it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder

from ...states.values.value import encodable

_MAX_BRACES = 100
"""How many opening braces are tried: more than any model writes around its answer."""

_DECODER = JSONDecoder()


def json_objects(text: str, member: str) -> Iterator[str]:
    """The JSON objects in the text that have this member, one after the other, each as it is written; objects inside of
    others are passed over. The search is bounded, whatever the text holds. `Pure.`"""
    text = encodable(text)
    start = text.find("{")
    for _ in range(_MAX_BRACES):
        if start < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, start)
            if member in value:
                yield text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
