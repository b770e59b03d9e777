"""A client that writes bytes to a socket: for requests that no HTTP library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import h11

from turnwise.hosts.http.problems import MEDIA_TYPE, Problem

from .live_server import PATIENCE


@dataclass(frozen=True)
class Answer:
    """A response as it arrived."""

    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> Problem:
        """The problem that the response is. Raises AssertionError for any other response."""
        assert self.headers.get("content-type") == MEDIA_TYPE, (self.status, self.headers, self.body[:500])
        problem = Problem.model_validate_json(self.body)
        assert problem.status == self.status
        return problem


class RawClient:
    """A connection to a server of this machine, from an address of this machine."""

    def __init__(self, port: int, *, receive_buffer: int | None = None, address: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        """Write bytes, unless the server has closed the connection."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def answer(self, method: bytes = b"GET") -> Answer | None:
        """Read one response; None if the server closes the connection without one."""
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target=b"/", headers=[("host", "x")]))
        reader.send(h11.EndOfMessage())
        response: h11.Response | None = None
        body = b""
        while True:
            event = reader.next_event()
            match event:
                case h11.NEED_DATA:
                    received = self._received()
                    if not received and response is None:
                        return None
                    reader.receive_data(received)
                case h11.Response():
                    response = event
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage() if response is not None:
                    headers = {name.decode(): value.decode() for name, value in response.headers}
                    return Answer(response.status_code, headers, body)

    def _received(self) -> bytes:
        try:
            return self.socket.recv(65_536)
        except ConnectionResetError:
            return b""

    def is_closed(self) -> bool:
        """Read until the server closes the connection, which it must."""
        while self._received():
            pass
        return True


@contextmanager
def connected(port: int, *, receive_buffer: int | None = None, address: str = "127.0.0.1") -> Iterator[RawClient]:
    """Connect to a server from this address, and close the connection at the end."""
    client = RawClient(port, receive_buffer=receive_buffer, address=address)
    try:
        yield client
    finally:
        client.socket.close()


def ask(port: int, request: bytes) -> Answer | None:
    """Send these bytes on a new connection, and return the response to them."""
    with connected(port) as client:
        client.send(request)
        return client.answer()
