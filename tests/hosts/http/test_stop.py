"""How a server stops: real signals to real processes, and what is there at the next start."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ...support.doors.waiting import until
from ...support.http import waiting_server
from ...support.http.event_stream import ServerSentEvent, events_of, read_until
from ...support.http.live_server import PATIENCE
from ...support.http.raw_client import connected
from ...support.http.server_process import ServerProcess, started

pytestmark = pytest.mark.slow


@contextmanager
def served(folder: Path, port: int = 0, engine_seconds: float = 20.0) -> Iterator[ServerProcess]:
    """Start the program of `waiting_server` in this folder."""
    with started([waiting_server.__file__, str(port), str(engine_seconds)], folder) as server:
        yield server


@contextmanager
def following(server: ServerProcess, conversation: str, after: str) -> Iterator[Iterator[ServerSentEvent]]:
    """Open the stream of a conversation after an update."""
    path = f"{server.url}/conversations/{conversation}/events"
    with httpx.stream("GET", path, headers={"Last-Event-ID": after}, timeout=PATIENCE) as response:
        yield events_of(response)


def begin_turn(server: ServerProcess) -> str:
    """Begin a conversation with a turn whose tool waits."""
    created = httpx.post(f"{server.url}/conversations", json={}, timeout=PATIENCE).json()
    conversation: str = created["id"]
    httpx.post(f"{server.url}/conversations/{conversation}/messages", json={"text": "Look!"}, timeout=PATIENCE)
    return conversation


def test_a_stopped_server_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """H9: SIGTERM while a tool runs: the stream ends with the reason, the process ends with 0, and at the next start
    the turn goes on. A client that resumes has every update once, in order."""
    with served(tmp_path) as server:
        conversation = begin_turn(server)
        with following(server, conversation, "1.0") as events:
            first = read_until(events, "tool")
            server.process.terminate()
            first += events
        code = server.wait()
    (tmp_path / "go").touch()
    with served(tmp_path, server.port) as server:
        last = [event.id for event in first if event.id][-1]
        with following(server, conversation, last) as events:
            second = read_until(events, "turn_ended")
        with following(server, conversation, "1.0") as events:
            uncut = read_until(events, "turn_ended")

    assert code == 0
    assert (first[-1].event, first[-1].json["data"]) == ("end", {"reason": "server_stopping"})
    assert [event for event in (*first, *second) if event.id] == [event for event in uncut if event.id]
    assert second[-1].json["data"]["final_content"] == "It is a bird."


def test_nobody_holds_up_the_stop(tmp_path: Path) -> None:
    """H9: neither an idle client, nor one that sends half a body, nor an engine that does not close keeps the process
    from ending by itself; it takes no connections meanwhile."""
    (tmp_path / "stuck").touch()
    with served(tmp_path, engine_seconds=0.2) as server, connected(server.port) as idle, connected(server.port) as slow:
        slow.send(b"POST /conversations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.send(b"Content-Length: 100\r\n\r\n{")
        server.process.send_signal(signal.SIGINT)
        code = server.wait()

        assert idle.answer() is None
        assert slow.answer() is None
    assert code == 0
    assert server.lines[1:] == ["stopping\n", "stopped\n"]


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """Whoever does not want to wait signals again."""
    (tmp_path / "stuck").touch()
    with served(tmp_path, engine_seconds=3600) as server:
        server.process.terminate()
        until(lambda: "stopping\n" in server.lines)
        code = server.terminate()

    assert code == -signal.SIGTERM
