"""One connection of the server: uvicorn's protocol over h11, with what a server needs that strangers can reach.

uvicorn limits neither the time that the head of a request may take nor the time that a client may take to read, and
answers a broken request in plain text. Here a request that is refused before it reaches the application gets a problem,
like every other; a client that is too slow is disconnected; and too many connections are refused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ..problems import MEDIA_TYPE, HttpCode, ProblemResponse, body_of, http_problem
from ..streams.sse import WATCHES_READERS
from .connection import LimitedConnection
from .limits import ServerLimits

SURPLUS = 50
"""How many connections above the limit get an answer that says so. More are cut off."""

LEAST_READ = 16_384
"""A client that reads fewer bytes than this in `send_seconds` does not read: about half a kilobyte a second."""

logger = logging.getLogger("turnwise.http")


class GuardedProtocol(H11Protocol):
    """A connection with limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerLimits,
    ) -> None:
        super().__init__(config, server_state, {**app_state, WATCHES_READERS: True}, _loop)
        self.conn: LimitedConnection = LimitedConnection(limits)
        self._limits = limits
        self._is_refused = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- the head of a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        surplus = len(self.connections) - self._limits.connections
        if surplus > SURPLUS:
            transport.abort()
        elif surplus > 0:
            self.app = refuse_surplus
        self._start("head", self._limits.head_seconds, self._end_head)

    def data_received(self, data: bytes) -> None:
        """Take what the client sends. What follows a refused request is dropped."""
        if self._is_refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop("head")
        elif "head" not in self._timers:
            self._start("head", self._limits.head_seconds, self._end_head)

    def _end_head(self) -> None:
        """Refuse a request whose head did not arrive in time. A connection on which nothing came is closed."""
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                self._refuse("timeout")
            else:
                self.transport.close()

    # --- refusals

    def send_400_response(self, msg: str) -> None:
        """Answer a request that h11 cannot read. `msg` is uvicorn's own text for it."""
        self._refuse(self.conn.fault)

    def _refuse(self, code: HttpCode) -> None:
        """Answer with a problem, and end the connection once the client has read it."""
        self._is_refused = True
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # a response has begun
            return
        problem = http_problem(code)
        body = body_of(problem)
        headers = [
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        response = h11.Response(status_code=problem.status, headers=headers, reason=problem.title)
        for event in (response, h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start("linger", self._limits.linger_seconds, self.transport.abort)

    # --- the end of a response

    def on_response_complete(self) -> None:
        """Go on with the next request. A client that still sends the body of a request that was answered may do so for
        `linger_seconds`."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._start("linger", self._limits.linger_seconds, self._end_unread_body)

    def _end_unread_body(self) -> None:
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()

    # --- clients that do not read

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is written to."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """Note that the client has read nearly everything."""
        self._stop("reading")
        super().resume_writing()

    def _watch_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._start("reading", self._limits.send_seconds, lambda: self._check_reading(unread))

    def _check_reading(self, unread: int) -> None:
        if unread - self.transport.get_write_buffer_size() >= LEAST_READ:
            self._watch_reading()
            return
        sentence = "A client of %r was disconnected: it did not read for %g s."
        logger.warning(sentence, self.scope["path"], self._limits.send_seconds)
        self.transport.abort()

    # --- timers

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for name in [*self._timers]:
            self._stop(name)
        super().connection_lost(exc)

    def _start(self, name: str, seconds: float, act: Any) -> None:
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, self._expire, name, act)

    def _expire(self, name: str, act: Any) -> None:
        del self._timers[name]
        act()

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()


async def refuse_surplus(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection that is one too many, and end the connection."""
    response = ProblemResponse(http_problem("too_many_connections"), {"connection": "close", "retry-after": "5"})
    await response(scope, receive, send)
