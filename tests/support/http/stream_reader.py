"""A client in the process of the server, which reads a stream and can disconnect at any point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp, Message

from .event_stream import EventStreamParser, ServerSentEvent


class StreamReader:
    """Reads a response from an ASGI application, and can disconnect at any point."""

    def __init__(self) -> None:
        self.status = 0
        self.received = b""
        self.ended = False
        self._changed = asyncio.Event()
        self._disconnected = asyncio.Event()

    @property
    def events(self) -> list[ServerSentEvent]:
        """The events that have arrived."""
        return EventStreamParser().feed(self.received)

    async def until(self, wanted: int) -> None:
        """Return when so many bytes have arrived, or the stream has ended."""
        while len(self.received) < wanted and not self.ended:
            await self._next_change()

    async def until_event(self, event_type: str) -> ServerSentEvent:
        """Return the first event of this type."""
        while True:
            found = next((event for event in self.events if event.event == event_type), None)
            if found is not None:
                return found
            assert not self.ended, f"the stream ended without {event_type}: {self.events}"
            await self._next_change()

    async def until_stored(self) -> ServerSentEvent:
        """Return the first event with an id."""
        while (found := next((event for event in self.events if event.id is not None), None)) is None:
            await self._next_change()
        return found

    async def until_id(self, wanted: str | None) -> None:
        """Return when the update with this id has arrived."""
        while all(event.id != wanted for event in self.events):
            assert not self.ended, f"the stream ended before {wanted}"
            await self._next_change()

    async def until_end(self) -> None:
        """Return when the stream has ended."""
        while not self.ended:
            await self._next_change()

    async def _next_change(self) -> None:
        self._changed.clear()
        await asyncio.wait_for(self._changed.wait(), 60)

    async def receive(self) -> Message:
        """Hand the application the request, which has no body; and that the client has gone, once it has."""
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take what the application sends."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.received += message["body"]
            self.ended = self.ended or not message.get("more_body", False)
        self._changed.set()

    def disconnect(self) -> None:
        """Stop reading."""
        self._disconnected.set()


@asynccontextmanager
async def reading(
    app: ASGIApp, path: str = "/", query: str = "", headers: Mapping[str, str] | None = None
) -> AsyncIterator[StreamReader]:
    """Return a context in which a client reads this path of an application. It disconnects at the end."""
    reader = StreamReader()
    sent = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in (headers or {}).items())]
    scope = {"type": "http", "scheme": "http", "method": "GET", "path": path, "headers": sent}
    scope["query_string"] = query.encode()
    task = asyncio.ensure_future(app(scope, reader.receive, reader.send))
    try:
        yield reader
    finally:
        reader.disconnect()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)
