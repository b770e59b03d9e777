"""The server. Its stop loses nothing, and is bounded in time.

A signal first closes the engine: streams then end with the reason, requests that wait are refused, and turns under way
stay in the log as after a crash, to go on at the next start. Connections that have not ended shortly after are cut off.
uvicorn by itself would wait for the streams, which have no end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette

from .limits import ServerLimits
from .protocol import GuardedProtocol

SPARE_SECONDS = 5.0
"""How much longer than its parts the whole stop may take before the process is ended: what an application hangs in
cannot always be cancelled."""

logger = logging.getLogger("turnwise.http")


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
    seconds = limits.engine_seconds + limits.stream_seconds + SPARE_SECONDS
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
