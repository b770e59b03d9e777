"""The server: it takes connections from strangers, and its stop loses nothing and is bounded in time.

A signal first closes the engine: streams then end with the reason, requests that wait are refused, and turns under way
stay in the log as after a crash, to go on at the next start. Connections that have not ended shortly after are cut off.
uvicorn by itself would wait for the streams, which have no end.

uvicorn limits neither the time that the head of a request may take nor the time that a client may take to read, and
answers a broken request in plain text. Here a request that is refused before it reaches the application gets a problem,
like every other; a client that is too slow is disconnected; and too many connections are refused. These limits hold
before a request is complete and after a response has begun; those in between are in `security`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any

import h11
import uvicorn
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ...states.errors import ConfigurationError
from .problems import MEDIA_TYPE, HttpCode, ProblemResponse, body_of, http_problem
from .sse import WATCHES_READERS

logger = logging.getLogger("turnwise.http")


@dataclass(frozen=True)
class ServerLimits:
    """How many clients there may be, how long the server waits for each, and how long it takes to stop."""

    connections: int = 500
    """How many connections there may be at once. Chosen so that a process with the usual limit of 1,024 open files has
    some left for the database."""

    head_bytes: int = 16_384
    """The largest head of a request: its first line and its headers."""

    headers: int = 100
    """How many headers a request may have. A browser sends about twenty."""

    head_seconds: float = 15.0
    """How long a client may take to send the head of a request."""

    linger_seconds: float = 5.0
    """How long the server reads on, and drops, what a client still sends when its request was refused. Without it the
    client would see a broken connection in place of the refusal."""

    send_seconds: float = 30.0
    """How long the server waits for a client that does not read."""

    engine_seconds: float = 20.0
    """How long the engine may take to close when the server stops: it tries once more to deliver what was said."""

    stream_seconds: float = 2.0
    """How long the connections may take to end after that."""


_SPARE_SECONDS = 5.0
"""How much longer than its parts the whole stop may take before the process is ended: what an application hangs in
cannot always be cancelled."""


class Server(uvicorn.Server):
    """Serves an application that has started, and stops on SIGTERM or SIGINT; a second signal ends the process at once.

    `close_engine` is called first when it stops. `on_listening` is called once connections are taken.
    """

    def __init__(
        self,
        app: Any,
        *,
        close_engine: Callable[[], Awaitable[None]],
        on_listening: Callable[[], None] = lambda: None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._limits = limits = ServerLimits() if limits is None else limits
        protocol: Any = partial(GuardedProtocol, limits=limits)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._close_engine = close_engine
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections. Streams end because the engine closes: sse-starlette would cut them off before."""
        AppStatus.enable_automatic_graceful_drain = False
        await super().startup(sockets)
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; on the second signal end the process."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, close the engine, let the streams end, and then cut off what is left."""
        for server in self.servers:
            server.close()
        await self._close_in_time()
        for connection in [*self.server_state.connections]:
            connection.shutdown()
        await self._end_connections()
        await super().shutdown(sockets)

    async def _close_in_time(self) -> None:
        try:
            await asyncio.wait_for(self._close_engine(), self._limits.engine_seconds)
        except TimeoutError:
            logger.warning("The engine did not close within %g s.", self._limits.engine_seconds)
        except Exception as error:
            logger.error("The engine could not be closed: %s.", type(error).__name__)

    async def _end_connections(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.stream_seconds):
                while self.server_state.connections:
                    await asyncio.sleep(0.02)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        await asyncio.sleep(0)  # the connections learn that they are lost


async def serve(
    app: Starlette,
    sockets: list[socket.socket],
    *,
    close_engine: Callable[[], Awaitable[None]],
    on_listening: Callable[[], None] = lambda: None,
    limits: ServerLimits | None = None,
) -> None:
    """Start the application, and serve it on these sockets until a signal comes. Raises what the application raises
    when it starts."""
    server = Server(app, close_engine=close_engine, on_listening=on_listening, limits=limits)
    async with app.router.lifespan_context(app):
        await server.serve(sockets)


def end_process_in_time(limits: ServerLimits) -> None:
    """End the process if it has not ended by itself when the server should have stopped long ago. What is stored is
    complete at any moment, so nothing is lost."""
    seconds = limits.engine_seconds + limits.stream_seconds + _SPARE_SECONDS
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


SURPLUS = 50
"""How many connections above the limit get an answer that says so. More are cut off."""

_LEAST_READ = 16_384
"""A client that reads fewer bytes than this in `send_seconds` does not read: about half a kilobyte a second."""


class GuardedProtocol(H11Protocol):
    """A connection with limits: uvicorn's protocol over h11, with what a server needs that strangers can reach."""

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
        self.conn: _LimitedConnection = _LimitedConnection(limits)
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
            self.app = _refuse_surplus
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
        if unread - self.transport.get_write_buffer_size() >= _LEAST_READ:
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


async def _refuse_surplus(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection that is one too many, and end the connection."""
    response = ProblemResponse(http_problem("too_many_connections"), {"connection": "close", "retry-after": "5"})
    await response(scope, receive, send)


_FAULTS: dict[int, HttpCode] = {431: "headers_too_large", 501: "not_implemented"}


class _LimitedConnection(h11.Connection):
    """The HTTP/1.1 parser of one connection. It also limits the head of a request, and remembers why a request is not
    valid, in `fault`."""

    def __init__(self, limits: ServerLimits) -> None:
        super().__init__(h11.SERVER, limits.head_bytes)
        self.fault: HttpCode = "malformed_request"
        self._limits = limits

    def next_event(self) -> Any:
        """Return the next event. Raises `h11.RemoteProtocolError`, also for a head that has arrived completely but is
        too large: h11 limits only what is incomplete."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request) and self._is_too_large(event):
                raise h11.RemoteProtocolError("The head of the request is too large.", error_status_hint=431)
        except h11.RemoteProtocolError as error:
            self.fault = _FAULTS.get(error.error_status_hint, "malformed_request")
            raise
        return event

    def _is_too_large(self, request: h11.Request) -> bool:
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        return size > self._limits.head_bytes or len(request.headers) > self._limits.headers


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of this host, all with the same port; 0 stands for a free one. Raises
    `ConfigurationError`."""
    bound: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            bound.append(socket.create_server((address, port), family=family, backlog=2048))
            port = port or bound[0].getsockname()[1]
    except (OSError, OverflowError) as error:
        for one in bound:
            one.close()
        raise ConfigurationError(f"The server cannot listen at {host}, port {port}: {_reason(error)}.") from None
    return bound


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _reason(error: Exception) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another program uses the port"
        case OSError(errno=errno.EACCES):
            return "you may not use this port; choose one above 1023"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine does not have the address"
        case socket.gaierror():
            return "the name is not known"
        case OverflowError():
            return "a port is a number up to 65535"
        case _:
            return str(getattr(error, "strerror", None) or error)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach the host. A name counts as what it is resolved to. Raises
    `ConfigurationError` for a name that is not known."""
    try:
        return all(ip_address(address.partition("%")[0]).is_loopback for _, address in _addresses(host, 0))
    except OSError:
        raise ConfigurationError(f"The host {host} is not known.") from None


def address_of(host: str, port: int) -> str:
    """Return the address of the page, as one types it into a browser. `Pure.`"""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
