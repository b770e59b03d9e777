"""Readers on real sockets: some do not read, some lose their connection, and none of them concerns the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

import pytest

from turnwise import Engine
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.hosts.http.security import HttpLimits
from turnwise.hosts.http.streams import PIECE
from turnwise.testing import reply

from ...support.doors.waiting import until
from ...support.http.event_stream import ServerSentEvent, read_until
from ...support.http.live_server import LiveServer, serving
from ...support.http.raw_client import connected

pytestmark = pytest.mark.slow

TOKENS = 100
LENGTH = 65_536
"""The tokens of one answer fill what the system keeps of a connection several times over."""

UVICORN_KEEPS = 65_536
"""Bytes that a client has not read, above which uvicorn lets the application wait."""


class LongAnswer:
    """A model that shows a long text, and answers with a short one."""

    name = "long"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Show the tokens, one at a time."""
        for number in range(TOKENS):
            show(Token(f"{number} ".ljust(LENGTH, "x")))
            await asyncio.sleep(0)
        return reply("Done.")


@contextmanager
def served(send_seconds: float) -> Iterator[LiveServer]:
    """Run a server that waits so long for a reader that does not read."""
    engine = Engine.open("sqlite://", model=LongAnswer())
    with serving(engine, limits=HttpLimits(send_seconds=send_seconds)) as server:
        yield server


def numbers(events: list[ServerSentEvent]) -> list[int]:
    """The numbers of the tokens that were shown."""
    return [int(event.json["data"]["text"].split()[0]) for event in events if event.event == "token"]


def test_readers_that_do_not_read_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    """H3: readers that do not read cost a bounded amount of memory each and are disconnected, with a reason in the log.
    Another reader has every token in order, and one that was disconnected resumes without a loss."""
    caplog.set_level(logging.WARNING, "turnwise.http")
    with served(2.0) as server, server.client() as client, ExitStack() as stack:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        idle = [stack.enter_context(connected(server.port, receive_buffer=4096)) for _ in range(8)]
        for one in idle:
            one.send(f"GET {path}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with server.events(f"{path}/events") as events:
            read_until(events, "snapshot")
            client.post(f"{path}/messages", json={"text": "Go"})
            seen = read_until(events, "turn_ended")
        unread = [connection.transport.get_write_buffer_size() for connection in server.connections]
        until(lambda: caplog.text.count("did not read for 2 s") == len(idle))

        assert numbers(seen) == list(range(TOKENS))
        assert max(unread) <= UVICORN_KEEPS + PIECE + 1_000
        assert all(one.is_closed() for one in idle)
        with server.events(f"{path}/events", after="1.0") as events:
            stored = [event for event in seen if event.id]
            assert list(islice(events, len(stored))) == stored


def test_a_connection_that_is_cut_is_resumed() -> None:
    """H2: a client that loses its connection after every event, on a real socket, has every stored update once and in
    order."""
    with served(60.0) as server, server.client() as client:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        with server.events(f"{path}/events") as events:
            shown = read_until(events, "snapshot")
            client.post(f"{path}/messages", json={"text": "Go"})
        while shown[-1].event != "turn_ended":
            with server.events(f"{path}/events", after=shown[-1].id) as events:
                shown.append(next(event for event in events if event.id))
        with server.events(f"{path}/events", after=shown[0].id) as events:
            uncut = read_until(events, "turn_ended")

    assert shown[1:] == [event for event in uncut if event.id]
