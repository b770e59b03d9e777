"""Texts of models, tools and people, made fit to be stored and to be read by a model.

JSON can hold lone surrogates as escapes, beside those that stand in a text itself. Work on long texts is done so that
it does not hold up the event loop. The names of days and months are English, whatever the locale of the process is,
because models read them.

Texts of other people stand below a title, in limited length, for a model that is to read them and not to obey them.
The title stands at the left margin and the text is indented, so that nothing in the text can pass for another title.
"""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import TypeVar

from ..states.values.value import encodable

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""One escape in JSON text: a pair of surrogates, a lone surrogate (the group), or any other."""


def encodable_json(text: str) -> str:
    """Return JSON text with each lone surrogate replaced, also where it is written as an escape. `Pure.`"""
    text = encodable(text)
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape[1] else escape[0], text) if "\\u" in text else text


def is_encodable(value: object) -> bool:
    """Return whether a JSON value has no lone surrogate at any depth. `Pure.`"""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return False
    return True


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

T = TypeVar("T")

LONG = 50_000
"""Characters from which on work on a text is done in a thread. Redacting that many takes some 50 ms."""


async def in_thread_if_long(characters: int, work: Callable[[], T], most: int = LONG) -> T:
    """Return what `work` returns. Other conversations go on while it works on a text of more than `most` characters.
    Raises what it raises."""
    return await asyncio.to_thread(work) if characters > most else work()


_MARGIN = "  "

NOTE_SIZE = 60
"""Bytes that are reserved for the note that something was left out."""


def titled(title: str, text: str) -> str:
    """The text below its title, indented, so that nothing in it can pass for a title. `Pure.`"""
    return f"{title}:\n{textwrap.indent(text.strip(), _MARGIN, lambda line: True)}"


def cut_middle(text: str, limit: int) -> str:
    """The text in at most `limit` bytes: if it is longer, its beginning and its end. `Pure.`"""
    data = text.encode()
    if len(data) <= limit:
        return text
    room = max(0, limit - NOTE_SIZE)
    tail = room // 3
    beginning = data[: room - tail].decode(errors="ignore")
    end = data[len(data) - tail :].decode(errors="ignore") if tail else ""
    return f"{beginning} [… {len(text) - len(beginning) - len(end)} characters left out …] {end}"


_MAX_BRACES = 100
"""How many opening braces are tried: more than any model writes around its answer."""

_DECODER = json.JSONDecoder()


def json_objects(text: str, member: str) -> Iterator[str]:
    """The JSON objects in the text that have this member, one after the other, each as it is written; objects inside of
    others are passed over. Models that are asked for one object write it between code fences and sentences, or write
    several. The search is bounded, whatever the text holds. `Pure.`"""
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
