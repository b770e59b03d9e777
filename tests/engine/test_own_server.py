"""An application's own server: its streams of updates do not keep it from stopping."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.testing import FunctionLlm

SERVER = """
import contextlib, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from turnwise import Engine

@contextlib.asynccontextmanager
async def lifespan(app):
    async with Engine.open(sys.argv[1]) as engine:
        app.state.conversation = await engine.create()
        with engine.stopping_updates():
            yield
    print("closed", flush=True)

async def events(request):
    async def written():
        async for update in request.app.state.conversation.updates():
            yield f"data: {update.type}\\n\\n"
        yield "data: end\\n\\n"
    return StreamingResponse(written(), media_type="text/event-stream")

uvicorn.run(Starlette(routes=[Route("/events", events)], lifespan=lifespan), port=int(sys.argv[2]), log_level="error")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_with_an_open_stream_stops(database: Path, number: signal.Signals) -> None:
    """uvicorn waits for open responses before it ends the lifespan that closes the engine. So updates end at the
    signal, the client reads its stream to the end, and the engine closes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [sys.executable, "-c", SERVER, str(database), str(port)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            with closing(_connected(port)) as connection, connection.getresponse() as stream:
                first = stream.readline()
                server.send_signal(number)
                rest = stream.read()
            out, errors = server.communicate(timeout=20)
        finally:
            server.kill()

    assert first == b"data: snapshot\n"
    assert rest.endswith(b"data: end\n\n")
    assert out == "closed\n", errors


def _connected(port: int) -> http.client.HTTPConnection:
    """Return a connection that has asked for the stream of the server, once it listens."""
    end = time.monotonic() + 30
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", "/events")
            return connection
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


async def test_updates_that_were_stopped_end(database: Path) -> None:
    """Those that are being read, and those that begin later, behind what is stored by then; the engine works on."""
    async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
        conversation, tree = await engine.create(), engine.updates()
        updates = conversation.updates()
        assert [(await anext(updates)).type, (await anext(tree)).update.type] == ["snapshot", "tree_snapshot"]

        engine.stop_updates()

        assert [update.type async for update in updates] == []
        assert [update async for update in tree] == []
        assert [update.type async for update in conversation.updates()] == ["snapshot"]
        assert [update.type async for update in (await engine.create()).updates()] == ["snapshot"]
        assert (await conversation.send("Hello")).reply == "Yes."


async def test_in_another_thread_signals_are_left_alone(database: Path) -> None:
    """The lifespan of an application runs in a thread under a test client, which is told of no signals."""

    async def enter() -> bool:
        async with Engine.open(database) as engine:
            with engine.stopping_updates():
                return engine.is_open

    before = signal.getsignal(signal.SIGTERM)

    assert await asyncio.to_thread(asyncio.run, enter())
    assert signal.getsignal(signal.SIGTERM) is before
