"""The server: uvicorn, with a stop that loses nothing and is bounded in time.

A signal first closes the engine: streams then end with the reason, requests that wait are refused, and turns under way
stay in the log as after a crash, to go on at the next start. Connections that have not ended shortly after are cut off.
uvicorn by itself would wait for the streams, which have no end. Where other processes share the database, the engine
may drain before: the turns that it performs come to rest, and whoever watches them here sees it.

What happens before a request has arrived is uvicorn's own: it waits without end for the head of a request, and answers
a broken one, or one too many, in plain text. A server that strangers can reach stands behind a proxy, which limits what
a connection may do; docs/guides/http.md has the configuration. The limits of a body are in `security`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from types import FrameType
from typing import Any

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette

from ...states.errors import ConfigurationError
from ..ending import StopSignals, end_process_after

logger: logging.Logger = logging.getLogger("turnwise.http")


@dataclass(frozen=True)
class ServerLimits:
    """How many connections there may be, and how long the server takes to stop."""

    connections: int = 500
    """How many connections there may be at once: with more, requests get 503. Chosen so that a process with the usual
    limit of 1,024 open files has some left for the database."""

    engine_seconds: float = 20.0
    """How long the engine may take to close when the server stops: it tries once more to deliver what was said."""

    stream_seconds: float = 2.0
    """How long the connections may take to end after that."""


_SPARE_SECONDS = 5.0
"""How much longer than its parts the whole stop may take before the process is ended."""


class Server(uvicorn.Server):
    """Serves an application that has started, and stops on SIGTERM or SIGINT; a second signal ends the process at once.

    `close_engine` is called first when it stops; before it `drain`, if that is given. Then the second signal ends what
    that waits for, and the third one the process. `on_listening` is called once connections are taken.
    """

    def __init__(
        self,
        app: Any,
        *,
        close_engine: Callable[[], Awaitable[None]],
        drain: Callable[[], Coroutine[Any, Any, None]] | None = None,
        on_listening: Callable[[], None] = lambda: None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._limits = limits = ServerLimits() if limits is None else limits
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # what fails is in the log of the application, without what it quotes
                access_log=False,
                server_header=False,
                limit_concurrency=limits.connections,
                timeout_graceful_shutdown=1,
            )
        )
        self._close_engine = close_engine
        self._drain = drain
        self._on_listening = on_listening
        self._signals: StopSignals

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal comes."""
        self._signals = StopSignals(finishes=self._drain is not None)
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections. Streams end because the engine closes: sse-starlette would cut them off before."""
        AppStatus.enable_automatic_graceful_drain = False
        await super().startup(sockets)
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; on a later signal do not wait any longer."""
        self.should_exit = True
        self._signals.note(sig)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, drain and close the engine, let the streams end, and then cut off what is left."""
        for server in self.servers:
            server.close()
        if self._drain is not None:
            await self._signals.finish(self._drain())
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
    drain: Callable[[], Coroutine[Any, Any, None]] | None = None,
    on_listening: Callable[[], None] = lambda: None,
    limits: ServerLimits | None = None,
) -> None:
    """Start the application, and serve it on these sockets until a signal comes; see `Server`. Raises what the
    application raises when it starts."""
    server = Server(app, close_engine=close_engine, drain=drain, on_listening=on_listening, limits=limits)
    async with app.router.lifespan_context(app):
        await server.serve(sockets)


def end_process_in_time(limits: ServerLimits) -> None:
    """End the process if it has not ended by itself when the server should have stopped long ago."""
    end_process_after(limits.engine_seconds + limits.stream_seconds + _SPARE_SECONDS)


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
