"""The two servers that `http_streams.py` measures, each in a process of its own.

The real one is what `turnwise serve` runs, with a model that shows numbered pieces at a fixed rate. The floor is the
least that any server must do to stream the same events to the same clients: an event loop that writes them to sockets,
without conversations, requests, a database or a web framework.

Each piece holds its number within the answer and the moment at which it was shown. The clock is the monotonic clock of
the machine, which all processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from turnwise import Engine, ModelAnswer, ModelRequest, Token

PIECE = re.compile(r"(\d+)@(\d+)")
"""The number of a piece, and the nanoseconds of the moment at which it was shown."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Load:
    """What is streamed: each of the conversations has so many turns, each of its answers so many pieces, at so many a
    second; `subscribers` follow each conversation."""

    conversations: int = 50
    subscribers: int = 4
    turns: int = 10
    pieces: int = 40
    rate: float = 20.0

    def beginning_of(self, number: int) -> float:
        """Return how many seconds after the first conversation this one begins, so that their pieces do not come all at
        once."""
        return number / (self.conversations * self.rate)


def piece(number: int) -> str:
    """Return a piece that is shown now."""
    return f"{number}@{time.monotonic_ns()} "


class Model:
    """Shows numbered pieces at a fixed rate."""

    name = "steady"

    def __init__(self, load: Load) -> None:
        self._load = load

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer with the pieces that were shown."""
        shown = []
        async for number in ticks(self._load):
            shown.append(piece(number))
            show(Token(shown[-1]))
        return ModelAnswer(content="".join(shown))


async def ticks(load: Load) -> AsyncIterator[int]:
    """Yield the numbers of the pieces of an answer at their moments."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(load.pieces):
        await asyncio.sleep(max(0.0, begun + (number + 1) / load.rate - loop.time()))
        yield number


# --- the process of a server


async def serve(folder: Path, load: Load) -> None:
    """Serve conversations as `turnwise serve` does, until SIGTERM."""
    from turnwise.hosts.http import create_app  # takes a second to load, which the floor does without
    from turnwise.hosts.http.server import bind
    from turnwise.hosts.http.server import serve as serve_app

    engine = Engine.open(folder / "streams.db", model=Model(load))
    sockets = bind("127.0.0.1", 0)
    print(sockets[0].getsockname()[1], flush=True)
    await serve_app(create_app(engine), sockets, close_engine=engine.close)


class Floor:
    """Writes the same pieces to as many clients, as soon as all of them are there."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._writers: dict[int, list[asyncio.StreamWriter]] = {number: [] for number in range(load.conversations)}
        self._complete = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a client, who asks for the stream of this number."""
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        self._writers[int(head.split(b" ")[1][1:])].append(writer)
        if all(len(each) == self._load.subscribers for each in self._writers.values()):
            self._complete.set()

    async def stream(self, number: int) -> None:
        """Write all answers of a conversation, one after the other."""
        await self._complete.wait()
        await asyncio.sleep(self._load.beginning_of(number))
        for turn in range(1, self._load.turns + 1):
            async for each in ticks(self._load):
                data = {"text": piece(each), "kind": "text", "turn": turn, "request": turn, "attempt": 1}
                event = f"event: token\ndata: {json.dumps({'type': 'token', 'id': None, 'data': data})}\n\n".encode()
                self._write(number, b"%x\r\n%b\r\n" % (len(event), event))
        self._write(number, b"0\r\n\r\n")

    def _write(self, number: int, data: bytes) -> None:
        for writer in self._writers[number]:
            writer.write(data)


async def serve_floor(load: Load) -> None:
    """Be the floor, until SIGTERM."""
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    floor = Floor(load)
    server = await asyncio.start_server(floor.take, "127.0.0.1", 0)
    streams = [asyncio.ensure_future(floor.stream(number)) for number in range(load.conversations)]
    print(server.sockets[0].getsockname()[1], flush=True)
    await leaving.wait()
    for one in streams:
        one.cancel()


# --- the process that measures


@dataclass(frozen=True)
class Running:
    """A server that runs. Its memory and its processor time are known where the system has /proc, as Linux does."""

    port: int
    process: subprocess.Popen[str]

    @property
    def memory(self) -> int | None:
        """The bytes of memory that it takes now."""
        status = self._folder / "status"
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(found[1]) * 1024 if found else None

    @property
    def processor(self) -> float | None:
        """The seconds of processor time that its threads have taken."""
        threads = self._folder.glob("task/*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in threads) / 1e9 if self._folder.exists() else None

    @property
    def _folder(self) -> Path:
        return Path(f"/proc/{self.process.pid}")


@contextmanager
def running(load: Load, folder: Path | None) -> Iterator[Running]:
    """Start a server, the floor if there is no folder, and stop it at the end."""
    arguments = ["--load", json.dumps(asdict(load)), *([] if folder is None else ["--folder", str(folder)])]
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield Running(int(process.stdout.readline()), process)
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout:
            process.stdout.close()


def main() -> None:
    """Be one of the servers: print the port, and serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=json.loads, default={})
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    load = Load(**options.load)
    asyncio.run(serve_floor(load) if options.folder is None else serve(options.folder, load))


if __name__ == "__main__":
    main()
