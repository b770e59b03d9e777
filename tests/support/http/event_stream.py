"""A reader of Server-Sent Events, written after the rules of the HTML standard (section 9.2.6)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
"""Where a line ends. A carriage return that came last may be half of a pair."""


@dataclass(frozen=True)
class ServerSentEvent:
    """One event: `id` is None if it had none, and `data` its lines, joined by line feeds."""

    event: str = "message"
    data: str = ""
    id: str | None = None

    @property
    def json(self) -> Any:
        """The data, parsed."""
        return json.loads(self.data)


class EventStreamParser:
    """Turns the bytes of a stream, in pieces of any length, into events.

    `comments` are the comments so far, and `retry` is the last time to wait, in milliseconds.
    """

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.retry: int | None = None
        self._rest = b""
        self._fields: list[tuple[str, str]] = []

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Return the events that this piece completes."""
        *lines, self._rest = LINE_END.split(self._rest + piece)
        return [event for line in lines if (event := self._take(line.decode("utf-8")))]

    def _take(self, line: str) -> ServerSentEvent | None:
        if line:
            name, _, value = line.partition(":")
            self._note(name, value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, []
        data = [value for name, value in fields if name == "data"]
        last = dict(fields)
        return ServerSentEvent(last.get("event", "message"), "\n".join(data), last.get("id")) if data else None

    def _note(self, name: str, value: str) -> None:
        if not name:
            self.comments.append(value)
        elif name == "retry":
            self.retry = int(value)
        else:
            self._fields.append((name, value))


def events_of(response: httpx.Response) -> Iterator[ServerSentEvent]:
    """Yield the events of a response that streams, until the server ends it."""
    parser = EventStreamParser()
    for piece in response.iter_bytes():
        yield from parser.feed(piece)


async def async_events_of(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a response that streams, until the server ends it."""
    parser = EventStreamParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event


def read_until(
    events: Iterator[ServerSentEvent], is_last: Callable[[ServerSentEvent], bool] | str
) -> list[ServerSentEvent]:
    """Return the events up to the first one that `is_last` accepts, or that is of this type, with that one.

    Raises AssertionError if the stream ends before it.
    """
    found: list[ServerSentEvent] = []
    for event in events:
        found.append(event)
        if event.event == is_last if isinstance(is_last, str) else is_last(event):
            return found
    raise AssertionError(f"The stream ended after {[event.event for event in found]}.")
