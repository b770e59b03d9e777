"""The clients of `http_streams.py`: they read Server-Sent Events over real connections, and keep what arrived.

A client notes the ids of the stored updates and the numbers of the pieces in the order in which they came, so that what
was lost, doubled or out of order can be counted afterwards, and how long each piece was on its way.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import h11
from stream_servers import PIECE

Id = tuple[int, int]


@dataclass
class Faults:
    """How many updates were lost, doubled or out of order."""

    lost: int = 0
    doubled: int = 0
    disordered: int = 0

    def add(self, other: Faults) -> None:
        """Add those of another client."""
        self.lost += other.lost
        self.doubled += other.doubled
        self.disordered += other.disordered

    def count(self, received: Sequence[Any], expected: Sequence[Any]) -> None:
        """Compare what a client received with what it should have received, both in order."""
        self.lost += len(set(expected) - set(received))
        self.doubled += len(received) - len(set(received))
        self.disordered += sum(later < earlier for earlier, later in pairwise(received))


async def events(port: int, path: str, after: str | None = None) -> AsyncIterator[dict[str, Any]]:
    """Yield the data of each event of a stream, until it ends or the caller stops."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = h11.Connection(h11.CLIENT)
    headers = [("host", f"127.0.0.1:{port}"), ("accept", "text/event-stream")]
    headers += [] if after is None else [("last-event-id", after)]
    writer.write(connection.send(h11.Request(method="GET", target=path, headers=headers)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    text = b""
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            elif isinstance(event, h11.Response):
                assert event.status_code == 200, event
            elif isinstance(event, h11.Data):
                *complete, text = (text + event.data).split(b"\n\n")
                for data in map(_data_of, complete):
                    if data is not None:
                        yield data
    finally:
        writer.close()


def _data_of(event: bytes) -> dict[str, Any] | None:
    """Return the data of an event; None for a comment, which has none."""
    found = next((line for line in event.split(b"\n") if line.startswith(b"data: ")), None)
    return None if found is None else json.loads(found[6:])


@dataclass
class Subscriber:
    """A client that follows one stream. It is `ready` when it has the snapshot, and ends after so many `turns`.

    With `resumes_at`, the number of a stored update, it breaks the connection there and comes back with the id of it.
    """

    port: int
    path: str
    turns: int
    resumes_at: int | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    first: Id = (0, 0)
    """The id of the snapshot."""
    ids: list[Id] = field(default_factory=list)
    events: int = 0
    resumed: int = 0
    ended: int = 0
    """How many ends of turns arrived."""
    delays: list[int] = field(default_factory=list)
    """Nanoseconds that each piece was on its way."""
    pieces: Faults = field(default_factory=Faults)
    _turn_ended: asyncio.Event = field(default_factory=asyncio.Event)
    _answer: Any = None
    _numbers: list[int] | None = field(default_factory=list)
    """The numbers of the pieces of the answer that is being written; None if the beginning of it is not known, because
    the connection broke."""

    async def follow(self) -> None:
        """Read until all turns have ended."""
        after: str | None = None
        while self.ended < self.turns:
            stream = events(self.port, self.path, after)
            try:
                async for event in stream:
                    if await self._take(event):
                        after = event["id"]
                        break
                    if self.ended == self.turns:
                        break
                else:
                    raise ConnectionError(f"The stream {self.path} ended too soon.")
            finally:
                await stream.aclose()

    async def has_read(self, turns: int) -> None:
        """Return when the ends of so many turns have arrived."""
        while self.ended < turns:
            self._turn_ended.clear()
            await self._turn_ended.wait()

    async def read_floor(self) -> None:
        """Read to the end of a stream of pieces alone."""
        self.ready.set()
        async for event in events(self.port, self.path):
            self.events += 1
            self._take_token(event["data"])

    async def _take(self, event: dict[str, Any]) -> bool:
        """Take an event. Returns whether the connection is to break now."""
        self.events += 1
        kind, data = event["type"], event["data"]
        if kind == "token":
            self._take_token(data)
            return False
        if event["id"] is None:
            return False
        position = _position(event["id"])
        if kind == "snapshot":
            self.first = position
            self.ready.set()
            return False
        self.ids.append(position)
        if kind == "message" and data["role"] == "assistant":
            self._take_answer(data["text"])
        if kind == "turn_ended":
            self.ended += 1
            self._turn_ended.set()
        if len(self.ids) == self.resumes_at and not self.resumed:
            self.resumed, self._numbers = 1, None
            return True
        return False

    def _take_token(self, data: dict[str, Any]) -> None:
        found = [(int(number), int(at)) for number, at in PIECE.findall(data["text"])]
        numbers = [number for number, _ in found]
        answer = (data["request"], data["attempt"])
        if data.get("from_start") or (answer != self._answer and numbers[:1] == [0]):
            self._numbers = []
        self._answer = answer
        if self._numbers is None:  # pieces came without those before them
            self.pieces.lost += numbers[0]
            self._numbers = list(range(numbers[0]))
        self._numbers += numbers
        if not data.get("from_start"):
            now = time.monotonic_ns()
            self.delays += [now - at for _, at in found]

    def _take_answer(self, text: str) -> None:
        """The answer is complete: all of its pieces must have arrived, once, in order."""
        if self._numbers is not None:
            self.pieces.count(self._numbers, [int(number) for number, _ in PIECE.findall(text)])
        self._numbers = []

    def faults(self, stored: Sequence[Id]) -> Faults:
        """Return what was lost, doubled or out of order. `stored` are the ids of all updates of the log."""
        counted = Faults()
        counted.add(self.pieces)
        counted.count(self.ids, [each for each in stored if each > self.first])
        return counted


class SilentReader:
    """A client that asks for a stream and never reads it. Its receive buffer is as small as the system allows."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())

    def close(self) -> None:
        """Break the connection."""
        with suppress(OSError):
            self._socket.close()


def _position(update_id: str) -> Id:
    seq, n = update_id.split(".")
    return int(seq), int(n)
