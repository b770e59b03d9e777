"""The benchmark of streams over HTTP runs, and its clients notice what is wrong with a stream.

How long anything takes depends on the machine, so only what is counted is looked at.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_out_of_order() -> None:
    """Eight subscribers of four conversations receive every update and every piece once, in order, though some of them
    break their connections, and others never read."""
    command = [sys.executable, str(BENCHMARKS / "http_streams.py"), "--quick"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)

    assert (ran.returncode, ran.stderr) == (0, "")
    lines = [line.split() for line in ran.stdout.splitlines()]
    counted = {words[1]: (words[0], words[2]) for words in lines if words[1] in ("lost", "doubled", "disordered")}
    assert counted == dict.fromkeys(("lost", "doubled", "disordered"), ("met", "0"))
    assert ["subscribers", "that", "resumed", "2"] in lines


SNAPSHOT = {"type": "snapshot", "id": "2.0", "data": {}}
ENDED = {"type": "turn_ended", "id": "4.3", "data": {}}


def token(*numbers: int, from_start: bool = False, request: int = 1) -> dict[str, Any]:
    """The pieces of these numbers."""
    text = "".join(f"{number}@5 " for number in numbers)
    extra = {"from_start": True} if from_start else {}
    return {"type": "token", "id": None, "data": {"text": text, "request": request, "attempt": 1, **extra}}


def answer(count: int, update_id: str = "4.1") -> dict[str, Any]:
    """The complete answer of so many pieces."""
    text = "".join(f"{number}@5 " for number in range(count))
    return {"type": "message", "id": update_id, "data": {"role": "assistant", "text": text}}


def message(update_id: str) -> dict[str, Any]:
    """The message of a user."""
    return {"type": "message", "id": update_id, "data": {"role": "user", "text": "Hi"}}


async def faults(monkeypatch: pytest.MonkeyPatch, *connections: Sequence[dict[str, Any]], **options: Any) -> Any:
    """What a subscriber counts that receives these events, on one connection after the other. The log has the updates
    2.1, 2.2, 4.1, 4.2 and 4.3."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from stream_clients import Subscriber  # type: ignore[import-not-found]

    sent, heads = [*connections], []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = b": keep-alive\n\n" + b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in sent.pop(0))
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        for place in range(0, len(head + body), 7):  # events arrive in pieces, whatever their borders
            writer.write((head + body)[place : place + 7])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        subscriber = Subscriber(port, "/", turns=1, **options)
        await asyncio.wait_for(subscriber.follow(), 60)
        if len(connections) > 1:
            assert b"last-event-id: 2.2" in heads[-1].lower()
        counted = subscriber.faults([(2, 1), (2, 2), (4, 1), (4, 2), (4, 3)])
        return counted.lost, counted.doubled, counted.disordered
    finally:
        server.close()


STATE = {"type": "state_change", "id": "4.2", "data": {}}
BEGINNING = [SNAPSHOT, message("2.1"), message("2.2")]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([*BEGINNING, token(0), token(1), token(2), answer(3), STATE, ENDED], (0, 0, 0)),
        ([*BEGINNING, token(0), token(2), answer(3), STATE, ENDED], (1, 0, 0)),
        ([*BEGINNING, token(0), token(1), token(1), token(2), answer(3), STATE, ENDED], (0, 1, 0)),
        ([*BEGINNING, token(0), token(2), token(1), answer(3), STATE, ENDED], (0, 0, 1)),
        ([*BEGINNING, answer(3), STATE, ENDED], (3, 0, 0)),
        ([*BEGINNING, token(0), token(1), token(0, 1, 2, from_start=True), answer(3), STATE, ENDED], (0, 0, 0)),
        ([SNAPSHOT, message("2.2"), answer(0), STATE, ENDED], (1, 0, 0)),
        ([*BEGINNING, message("2.2"), answer(0), STATE, ENDED], (0, 1, 0)),
        ([SNAPSHOT, message("2.2"), message("2.1"), answer(0), STATE, ENDED], (0, 0, 1)),
    ],
    ids=["right", "piece lost", "piece twice", "pieces turned", "all lost", "caught up", "lost", "twice", "turned"],
)
async def test_a_client_counts(events: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault once, and none in a stream that is right."""
    assert await faults(monkeypatch, events) == expected


@pytest.mark.parametrize(
    ("resumed", "expected"),
    [
        ([token(0, 1, from_start=True), token(2), answer(3), STATE, ENDED], (0, 0, 0)),
        ([answer(3), STATE, ENDED], (0, 0, 0)),
        ([token(2), answer(3), STATE, ENDED], (2, 0, 0)),
        ([message("2.2"), answer(3), STATE, ENDED], (0, 1, 0)),
    ],
    ids=["text so far", "complete by then", "text so far is missing", "what was received before"],
)
async def test_a_client_that_resumed_counts(resumed: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for what follows the last update, and takes the text so far for what it had."""
    assert await faults(monkeypatch, [*BEGINNING, token(0)], resumed, resumes_at=2) == expected
