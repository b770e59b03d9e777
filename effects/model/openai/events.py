"""Reads the body of an answer as the JSON objects in it, however its server frames them.

Servers that speak OpenAI's protocol send server-sent events, or what they take for them: lines without a blank one
between them, a body of one object, comments, marks and line ends that are unusual. What is only unusual is read. What
is none of that, or does not end, is malformed.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from .failures import MalformedChunk

Chunk = Mapping[str, Any]

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANK_LINES = re.compile(r"(?:\n|\r\n){3,}")
_FIELD = re.compile(r"\s*(data|event|id|retry)(?::|$) ?(?:data: ?)*", re.IGNORECASE)
_SIGNS_OF_LIFE = frozenset({"ping", "heartbeat", "keep-alive", "keepalive"})
"""Names of events whose data need not be JSON."""

LONGEST_PAGE = 2**26
"""The most characters of a line, an event, or a body that is no stream. A longer one is no answer."""


class Events:
    """The JSON objects in the lines of a stream of server-sent events. Lines of JSON without a stream around them, and
    a body of several objects, or of a list of them, are read too. `is_done` says that the mark of the end has come."""

    def __init__(self) -> None:
        self.is_done: bool = False
        self._data: list[str] = []
        self._name = ""
        self._page: list[str] = []
        self._length = self._searched = 0

    @property
    def is_collecting(self) -> bool:
        """Whether lines have come of an event that is not complete."""
        return bool(self._data or self._page)

    def add(self, line: str) -> Iterator[Chunk]:
        """Add a line, without its end. Raises `MalformedChunk` for an event that is no JSON."""
        if not line:
            yield from self._dispatch(is_over=True)
        elif field := _FIELD.match(line):
            if (name := field[1].lower()) == "data":
                yield from self._add_data(line[field.end() :])
            elif name == "event":
                self._name = line[field.end() :].strip()
        elif self._data:  # an object over several lines, of which only the first is marked
            yield from self._add_data(line)
        elif not line.startswith(":"):
            yield from self._add_to_page(line)

    def end(self) -> Iterator[Chunk]:
        """What the end of the stream completes."""
        if self._page:
            page, self._page = "\n".join(self._page), []
            yield from _objects_in(_parsed_all(page))
        elif self._data:
            yield from self._dispatch(is_over=False)

    def _add_data(self, text: str) -> Iterator[Chunk]:
        self._data.append(text)
        self._length += len(text)
        if self._length > LONGEST_PAGE:
            raise MalformedChunk
        self._searched += self._length
        # An event over so many lines that looking for its end costs too much is complete at a blank line.
        if self._searched <= LONGEST_PAGE:
            yield from self._dispatch(is_over=False)

    def _dispatch(self, *, is_over: bool) -> Iterator[Chunk]:
        """Each line of data that is JSON is an event: some servers leave out the blank line between two of them."""
        text = "\n".join(self._data).strip()
        if not text:
            self._clear()
            return
        if text.strip('"').upper() in ("[DONE]", "DONE"):
            self.is_done = True
            self._clear()
            return
        value = parsed(text)
        if value is None and not is_over:
            return
        self._clear()
        name, self._name = self._name.lower(), ""
        if value is None:
            yield from _without_json(name, text)
            return
        for found in _objects_in(value):
            yield {"error": found} if name == "error" and "error" not in found else found

    def _clear(self) -> None:
        self._data.clear()
        self._length = self._searched = 0

    def _add_to_page(self, line: str) -> Iterator[Chunk]:
        if not self._page and (value := parsed(line)) is not None:
            yield from _objects_in(value)
            return
        self._length += len(line)
        if self._length > LONGEST_PAGE:
            raise MalformedChunk
        self._page.append(line)


def _without_json(name: str, text: str) -> Iterator[Chunk]:
    """What an event of this name says whose data is no JSON. Raises `MalformedChunk`."""
    if name == "error":
        yield {"error": text}
    elif name not in _SIGNS_OF_LIFE:
        raise MalformedChunk


def parsed(text: str, otherwise: Any = None) -> Any:
    """The value of JSON text, which may hold raw line ends; `otherwise` if it is none. `Pure.`"""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return otherwise


def _parsed_all(text: str) -> list[Any]:
    """The values of JSON that stand one behind the other in the text; none if it holds anything else."""
    decoder, values, rest = json.JSONDecoder(strict=False), [], text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        rest = rest[end:].lstrip()
    return values


def _objects_in(value: Any) -> Iterator[Chunk]:
    for found in value if isinstance(value, list) else [value]:
        if isinstance(found, Mapping):
            yield found


async def lines_in(content: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The lines of a body, without their ends, and without a mark of the byte order in front. Many blank lines in a row
    are one. Raises `MalformedChunk` for a line that is no part of an answer, as it does not end."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    pieces: list[str] = []
    length, is_behind_return = 0, False
    async for part in content:
        text = decoder.decode(part)
        if not text:
            continue
        if is_behind_return:  # whose line has ended, whether a line feed follows or not
            text = text.removeprefix("\n")
        is_behind_return = text.endswith("\r")
        first, *others = _LINE_END.split(_BLANK_LINES.sub("\n\n", text))
        pieces.append(first)
        length += len(first)
        if length > LONGEST_PAGE:
            raise MalformedChunk
        if others:
            yield "".join(pieces)
            for line in others[:-1]:
                yield line
            pieces, length = [others[-1]], len(others[-1])
    yield "".join(pieces) + decoder.decode(b"", final=True)


def is_openai(event: Chunk) -> bool:
    """Whether this is an event of OpenAI's protocol. `Pure.`"""
    kind = event.get("object")
    return "choices" in event or "error" in event or (isinstance(kind, str) and kind.startswith("chat.completion"))
