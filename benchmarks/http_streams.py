"""What streams over HTTP cost: many subscribers of many conversations, over real connections of the loopback interface.

The server runs in a process of its own, as `turnwise serve` runs it. 50 conversations have one turn after the other,
and each answer is streamed piece by piece; four clients follow each conversation, and one of the four breaks its
connection in the middle of the run and resumes with the id of the last update that it received. Every client checks
what it received: the stored updates against the log, and the pieces of each answer against the answer itself.

    python benchmarks/http_streams.py           200 subscribers for 20 s, twice, and the floor: a minute and a half
    python benchmarks/http_streams.py --quick   a few of them, to see that it works; its times say little

How to read it: the floor is a server that does nothing but write the same pieces to as many sockets, at the same rate,
with the same clients, in the same run. It has neither conversations nor a database. Where the machine is busy with
other things, all times grow, those of the floor too; the processor time of the server suffers least. That updates
arrive completely, once and in order is counted, and is the same on every machine.

| figure | what it is |
|---|---|
| lost, doubled, out of order | of all updates and pieces of all clients |
| token to subscriber | from the moment at which the model shows a piece to the moment at which a client has read it |
| processor time | of the server, for each event that a client received: storing the turns is part of it |
| memory | of the server at the end of the run, and of one whose load was the same but for 20 clients that never read |
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from figures import Figure, at_most
from stream_clients import Faults, Id, SilentReader, Subscriber
from stream_servers import Load, Running, running

from turnwise import Engine
from turnwise.engine.updates import updates_of_log

QUICK = Load(conversations=4, subscribers=2, turns=2, pieces=10, rate=200.0)

MEDIAN, TAIL, EACH = 4.0, 20.0, 6.0
"""How many times the floor the delays and the processor time may be. The slowest pieces meet the moments in which the
server also stores steps, so the aim for them is wider."""

SILENT = 512.0
"""Kilobytes that a client may take that never reads."""

RESUMING = 4
"""One of so many subscribers breaks its connection once."""


@dataclass(frozen=True)
class Streamed:
    """What came of a run."""

    events: int
    resumed: int
    faults: Faults
    delays: list[float]
    """Milliseconds that each piece was on its way, the shortest first."""
    processor: float | None
    """Seconds that the server computed."""
    memory: int | None
    """Bytes of the server at the end."""

    def delay(self, part: float) -> float:
        """The milliseconds within which this part of the pieces arrived."""
        return self.delays[min(len(self.delays) - 1, int(part * len(self.delays)))]

    @property
    def each(self) -> float:
        """Microseconds of processor time for each event."""
        return 1e6 * (self.processor or 0.0) / self.events


# --- the runs


async def stream_floor(server: Running, load: Load) -> Streamed:
    """Read the pieces of a server that does nothing else."""
    subscribers = [
        Subscriber(server.port, f"/{number}", load.turns)
        for number in range(load.conversations)
        for _ in range(load.subscribers)
    ]
    before = server.processor
    await asyncio.gather(*(one.read_floor() for one in subscribers))
    return _result(server, subscribers, before, [one.pieces for one in subscribers])


async def stream(server: Running, load: Load, silent: int, database: Path) -> Streamed:
    """Have the conversations talk while they are followed. `silent` clients never read."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
        ids = [await create(client, number) for number in range(load.conversations)]
        readers = [SilentReader(server.port, _stream_of(ids[number % len(ids)])) for number in range(silent)]
        subscribers = [
            Subscriber(server.port, _stream_of(each), load.turns, _break_of(number, load))
            for number, each in enumerate(each for each in ids for _ in range(load.subscribers))
        ]
        following = [asyncio.ensure_future(one.follow()) for one in subscribers]
        await asyncio.gather(*(one.ready.wait() for one in subscribers))
        before = server.processor
        leaders = subscribers[:: load.subscribers]
        talking = (
            talk(client, conversation_id, leader, load.beginning_of(number))
            for number, (conversation_id, leader) in enumerate(zip(ids, leaders, strict=True))
        )
        await asyncio.gather(*talking, *following)
        found = _result(server, subscribers, before, [])
        for reader in readers:
            reader.close()
    server.process.terminate()
    server.process.wait(60)
    stored = await stored_updates(database, ids)
    for number, one in enumerate(subscribers):
        found.faults.add(one.faults(stored[ids[number // load.subscribers]]))
    return found


async def create(client: httpx.AsyncClient, number: int) -> str:
    """Create a conversation, and return its id."""
    response = await client.post("/conversations", json={"id": f"stream-{number}"})
    response.raise_for_status()
    created: str = response.json()["id"]
    return created


async def talk(client: httpx.AsyncClient, conversation_id: str, leader: Subscriber, later: float) -> None:
    """Send one message after the other, the first after so many seconds, each other one when the leader has read the
    end of the turn before it."""
    await asyncio.sleep(later)
    for turn in range(leader.turns):
        message = {"text": f"Message {turn}", "message_id": f"message-{turn}"}
        await say(client, f"/conversations/{conversation_id}/messages", message)
        await leader.has_read(turn + 1)


async def say(client: httpx.AsyncClient, path: str, message: dict[str, str]) -> None:
    """Send a message. If the server closes the idle connection just then, it is sent again, under the same id."""
    while True:
        try:
            response = await client.post(path, json=message)
        except httpx.TransportError:
            continue
        response.raise_for_status()
        return


async def stored_updates(database: Path, ids: Sequence[str]) -> dict[str, list[Id]]:
    """Return the ids of all updates that follow from each log."""
    async with Engine.open(database) as engine:
        logs = {each: await (await engine.get(each)).events() for each in ids}
    return {each: [update.position for update in updates_of_log(log) if update.position] for each, log in logs.items()}


def _stream_of(conversation_id: str) -> str:
    return f"/conversations/{conversation_id}/events"


def _break_of(number: int, load: Load) -> int | None:
    """Return after how many stored updates this subscriber breaks its connection, if it does."""
    return load.turns * 2 + number // RESUMING % 4 if number % RESUMING == RESUMING - 1 else None


def _result(
    server: Running, subscribers: Sequence[Subscriber], before: float | None, pieces: Sequence[Faults]
) -> Streamed:
    after, faults = server.processor, Faults()
    for one in pieces:
        faults.add(one)
    return Streamed(
        sum(one.events for one in subscribers),
        sum(one.resumed for one in subscribers),
        faults,
        sorted(delay / 1e6 for one in subscribers for delay in one.delays),
        None if after is None or before is None else after - before,
        server.memory,
    )


# --- the figures


def figures(load: Load, silent_clients: Sequence[int], folder: Path) -> Iterator[Figure]:
    """Measure the floor, then a server for each of these numbers of clients that never read."""
    with running(load, None) as server:
        floor = asyncio.run(stream_floor(server, load))
    yield Figure(
        "the floor: token to subscriber, median, p99", f"{floor.delay(0.5):.2f} ms, {floor.delay(0.99):.2f} ms"
    )
    yield Figure("  its processor time for each event", f"{floor.each:.0f} us")
    memory: dict[int, int | None] = {}
    for silent in silent_clients:
        found = measured(load, folder / f"{silent}", silent)
        clients = load.conversations * load.subscribers
        others = f", {silent} never read" if silent else ""
        yield Figure(f"{clients} subscribers, {load.conversations} conversations{others}", f"{found.events} events")
        yield from _arrival(found)
        yield from _delays(found, floor)
        memory[silent] = found.memory
    yield from _memory(memory)


def measured(load: Load, folder: Path, silent: int) -> Streamed:
    """Run a server with a new database under this load."""
    folder.mkdir()
    with running(load, folder) as server:
        return asyncio.run(stream(server, load, silent, folder / "streams.db"))


def _arrival(found: Streamed) -> Iterator[Figure]:
    yield Figure("  subscribers that resumed", f"{found.resumed}")
    for what, count in vars(found.faults).items():
        yield at_most(f"  {what}", count, 0, "updates")


def _delays(found: Streamed, floor: Streamed) -> Iterator[Figure]:
    for name, part, aim in (("median", 0.5, MEDIAN), ("p99", 0.99, TAIL)):
        value, least = found.delay(part), floor.delay(part)
        yield Figure(f"  token to subscriber, {name}", f"{value:.2f} ms")
        yield at_most("    of the floor", value / least, aim, "times")
    yield at_most("  processor time for each event", found.each / floor.each, EACH, "times", f" ({found.each:.0f} us)")


def _memory(taken: Mapping[int, int | None]) -> Iterator[Figure]:
    """Compare the bytes of the first server and of the last one, by the number of clients that never read."""
    for silent, memory in taken.items():
        value = "not counted: there is no /proc" if memory is None else f"{memory / 2**20:.1f} MB"
        yield Figure(f"memory of the server, {silent} never read", value)
    (few, least), *_, (many, most) = [*taken.items()] * 2
    if least is not None and most is not None and many > few:
        yield at_most("  for each client that never reads", (most - least) / (many - few) / 1024, SILENT, "KB")


def main() -> None:
    """Print what streams cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few subscribers for a moment")
    load, silent = (QUICK, (2,)) if parser.parse_args().quick else (Load(), (0, 20))
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures(load, silent, Path(folder)):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
