"""The HTTP host on a real socket, in a thread with an event loop of its own.

with serving(Engine.open(database, model=ScriptedLlm([...]))) as server, server.client() as client:
    client.post("/conversations", json={})
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnwise import Engine
from turnwise.hosts.http.server import Server, ServerLimits

from .event_stream import ServerSentEvent, events_of

T = TypeVar("T")

PATIENCE = 120.0
"""How many seconds to wait for what certainly happens: the machine may be busy."""


class LiveServer:
    """A server that runs. `url` has no slash at its end."""

    def __init__(
        self, app: Any, port: int = 0, engine: Engine | None = None, limits: ServerLimits | None = None
    ) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._app = app
        self._ready = threading.Event()
        self._engine = engine
        self._server = Server(app, close_engine=self._close_engine, on_listening=self._ready.set, limits=limits)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="live server", daemon=True)

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run())
        finally:
            self._ready.set()

    async def _run(self) -> None:
        async with self._app.router.lifespan_context(self._app):
            await self._server.serve(sockets=[self._socket])

    async def _close_engine(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    @property
    def connections(self) -> list[H11Protocol]:
        """The connections that are open."""
        return [one for one in self._server.server_state.connections if isinstance(one, H11Protocol)]

    def start(self) -> None:
        """Start, and return when connections are taken. Raises AssertionError if the application does not start."""
        self._thread.start()
        assert self._ready.wait(PATIENCE), "The server did not start."
        assert self._server.started, "The application failed when it started; the traceback of its thread says why."

    def stop(self) -> None:
        """Stop as SIGTERM does: open streams end, the engine closes. May be called twice."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()
        assert not self._thread.is_alive(), "The server did not stop."

    def run(self, function: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        """Run a coroutine function in the event loop of the server, for example a method of the engine that it serves,
        and return its result."""

        async def called() -> T:
            return await function(*arguments, **options)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(PATIENCE)

    def client(self, **options: Any) -> httpx.Client:
        """Return a client of this server, with paths relative to its address."""
        return httpx.Client(base_url=self.url, **{"timeout": PATIENCE, **options})

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """Return a client of this server for tests with an event loop."""
        return httpx.AsyncClient(base_url=self.url, **{"timeout": PATIENCE, **options})

    @contextmanager
    def events(self, path: str, after: str | None = None, **options: Any) -> Iterator[Iterator[ServerSentEvent]]:
        """Open a stream of Server-Sent Events: all of it, or what came after the event with this id."""
        headers = {**options.pop("headers", {}), **({"Last-Event-ID": after} if after else {})}
        with self.client() as client, client.stream("GET", path, headers=headers, **options) as response:
            assert response.status_code == 200, response.read()
            yield events_of(response)


@contextmanager
def serving_app(
    app: Any, *, port: int = 0, engine: Engine | None = None, limits: ServerLimits | None = None
) -> Iterator[LiveServer]:
    """Serve an ASGI application, at a free port if none is given, until the block ends; the engine is then closed."""
    server = LiveServer(app, port, engine, limits)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def serving(engine: Engine, *, port: int = 0, **options: Any) -> Iterator[LiveServer]:
    """Serve an engine that is not yet open, and close it at the end. `options` are those of `create_app`."""
    from turnwise.hosts.http import create_app

    with serving_app(create_app(engine, **options), port=port, engine=engine) as server:
        yield server
