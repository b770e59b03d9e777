"""What turnwise adds to a request to a model, beside litellm alone: building it, reading its stream, and its answer.

The same request goes to one server of this machine, in turn by a bare `litellm.acompletion` and by a conversation. The
server is a process of its own, which has its answers written down, so what is measured is the client. A call of bare
litellm asks for a stream, reads the chunks, and joins their texts. For turnwise the performer of the request is timed:
from the moment at which the engine asks it to carry out the effect to the moment at which it has the answer as an
event. Nobody watches the conversation. Both hold the same messages.

    python benchmarks/model_path.py            about a minute
    python benchmarks/model_path.py --quick    a few calls, to see that it works; its figures say little

Each pair of calls is measured side by side, and the medians are compared: in processor time, and by the clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from figures import Figure, at_most, run
from standard_turn import find_table

from peers.standard import FOUND, SAID, SYSTEM
from turnwise import EffectContext, Engine, LiteLlm, ModelAnswer, ModelRequest, Token
from turnwise.effects.dispatcher import Performer
from turnwise.engine.composition import Performers, PortWrappers, wrapped_ports
from turnwise.states import Effect, RequestLlm

MODEL = "openai/measured"
ADDED = 1.10
"""What a call by turnwise may take, in calls of bare litellm."""

PAUSE = 0.02
"""Seconds before each call."""

PIECES = {"stream of 21 chunks": 18, "stream of 4 chunks": 1}
"""How many pieces of text an answer has. Its other three chunks are the role, the finish reason and the usage."""


@dataclass(frozen=True)
class Sizes:
    """How many calls are made of each kind."""

    calls: int = 150
    warm: int = 20


QUICK = Sizes(calls=3, warm=1)


# --- the server


def chunk(choices: list[dict[str, Any]], **fields: Any) -> bytes:
    """A chunk of a stream, as OpenAI writes it."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "measured", "choices": choices}
    return b"data: " + json.dumps({**base, **fields}).encode() + b"\n\n"


def streamed(pieces: int) -> bytes:
    """A streamed answer of so many pieces."""
    text = FOUND[: 11 * pieces]
    deltas = [{"role": "assistant"}, *({"content": text[n::pieces]} for n in range(pieces))]
    chunks = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    chunks.append(chunk([], usage={"prompt_tokens": 90, "completion_tokens": 40, "total_tokens": 130}))
    body = b"".join((*chunks, b"data: [DONE]\n\n"))
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection. Their path says how many pieces the answers have."""
    with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            lengths = [line.partition(":")[2] for line in head if line.lower().startswith("content-length")]
            await reader.readexactly(int(lengths[0]))
            writer.write(streamed(int(head[0].split("/")[1])))
    writer.close()


async def serve() -> None:
    """Print the port, and answer until the input ends."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None and process.stdout is not None
    port = int(await process.stdout.readline())
    yield f"http://127.0.0.1:{port}"
    process.stdin.close()
    await process.wait()


# --- the clients


@dataclass
class Stopwatch:
    """The processor time and the time of the clock that each call took, in milliseconds."""

    busy: list[float]
    clock: list[float]

    async def start(self) -> Callable[[], None]:
        """Begin to measure, and return what ends it. Waits first until nothing is left to do of earlier calls: litellm
        logs them in the background, and the engine writes its index."""
        await asyncio.sleep(PAUSE)
        busy, clock = process_time(), perf_counter()

        def stop() -> None:
            self.busy.append((process_time() - busy) * 1e3)
            self.clock.append((perf_counter() - clock) * 1e3)

        return stop


class Recorded(LiteLlm):
    """The model, which notes what it was asked."""

    request: ModelRequest

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Ask."""
        self.request = request
        return await super().complete(request, show)


async def ask_litellm(url: str, request: ModelRequest, watch: Stopwatch) -> None:
    """Send the request by litellm alone."""
    import litellm

    stop = await watch.start()
    stream: Any = await litellm.acompletion(
        model=MODEL,
        messages=list(request.messages),
        tools=list(request.tools),
        stream=True,
        stream_options={"include_usage": True},
        api_base=url,
        api_key="test",
    )
    text = ""
    async for one in stream:
        text += (one.choices[0].delta.content or "") if one.choices else ""
    stop()
    assert text


def timed(watch: Stopwatch) -> Callable[[Performers], Performers]:
    """Return what times the performer of requests."""

    def wrap(performers: Performers) -> Performers:
        perform: Performer = performers[RequestLlm]

        async def asked(effect: Effect, context: EffectContext) -> Any:
            stop = await watch.start()
            answered = await perform(effect, context)
            stop()
            return answered

        return {**performers, RequestLlm: asked}

    return wrap


async def compare(pieces: int, sizes: Sizes) -> tuple[Stopwatch, Stopwatch]:
    """Return what the calls took, of litellm alone and of turnwise."""
    bare, ours = Stopwatch([], []), Stopwatch([], [])
    async with served() as server:
        url = f"{server}/{pieces}"
        model = Recorded(MODEL, api_base=url, api_key="test")
        with wrapped_ports(PortWrappers(performers=timed(ours))):
            engine = Engine.open("sqlite://", model=model, tools=[find_table])
        async with engine:
            for _ in range(sizes.warm + sizes.calls):
                conversation = await engine.create(system=SYSTEM)
                await conversation.send(SAID)
                await ask_litellm(url, model.request, bare)
    for watch in (bare, ours):
        del watch.busy[: sizes.warm], watch.clock[: sizes.warm]
    return bare, ours


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """The figures of each kind of answer."""
    for what, pieces in PIECES.items():
        bare, ours = asyncio.run(compare(pieces, sizes))
        name = "model-path" if pieces > 1 else "model-path-short"
        alone, with_turnwise = median(bare.busy), median(ours.busy)
        yield Figure(what, f"{alone:.1f} ms, {with_turnwise:.1f} ms", name=f"{name}-ms", number=with_turnwise)
        ratio = with_turnwise / alone
        yield at_most("  processor time", ratio, ADDED, "of bare litellm", name=f"{name}-ratio")
        by_clock = median(ours.clock) / median(bare.clock)
        yield at_most("  by the clock", by_clock, ADDED, "of bare litellm", name=f"{name}-wall")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(serve())
    else:
        run(measure, Sizes(), QUICK, __doc__)
