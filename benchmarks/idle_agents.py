"""What background agents cost that rest: memory for each, tasks and timers.

An application holds handles on a thousand background agents, each of which has had some turns and now waits for mail,
for a message or for its schedule. Memory is counted by tracemalloc, so it does not depend on how busy the machine is.

    python benchmarks/idle_agents.py           1,000 agents, about a minute: tracemalloc slows everything down
    python benchmarks/idle_agents.py --quick   a few of them, to see that it works; the figures say little

How to read it: the baseline is what the log says of a conversation, its transcript and the turns that have ended, made
from the log alone in the same run. What an agent takes beyond that is its handle, its state, its log position, and what
its loop is made of. After more turns some of the difference is the transcript itself: events that were made in this
process take more memory than those that are read, of which the baseline is made. The agents are measured again after
the database was closed and opened. These have no transcript in memory until somebody asks for it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from counting_loop import CountingLoop
from figures import Figure, at_most

from turnwise import Conversation, EndedTurn, Engine, ModelAnswer, ModelRequest, Token
from turnwise.states.transcript import Transcript

MOST = 4096.0
"""Bytes that an agent may take beyond its transcript."""

WARM_UP = 5
"""Agents that come before the measured ones, so that what all of them share is there."""


class Model:
    """Answers at once, and keeps nothing."""

    name = "instant"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer with a text of its own."""
        return ModelAnswer(content=f"I have read {len(request.messages)} messages and found nothing new.")


class Resting(NamedTuple):
    """What agents at rest cost: bytes for each, bytes of its transcript, and the tasks and timers of all of them."""

    each: float
    transcript: float
    tasks: int
    timers: int

    @property
    def beyond(self) -> float:
        """Bytes for each agent beyond its transcript."""
        return self.each - self.transcript


async def allocated(make: Callable[[], Awaitable[list[Any]]]) -> tuple[float, list[Any]]:
    """Return how many bytes stay allocated for each of the things that `make` returns, and these."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    made = await make()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / len(made), made


async def settle(loop: CountingLoop) -> tuple[int, int]:
    """Wait until nothing is under way, and return the tasks and timers that are left."""
    for _ in range(50):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()), loop.timers


async def agent(engine: Engine, number: int, turns: int) -> Conversation:
    """Create a background agent that has had some turns."""
    conversation = await engine.create(role="background", system="You look for new tables.")
    for turn in range(turns):
        await conversation.send(f"Look for table {number} in street {turn}.")
    return conversation


async def transcripts(conversations: list[Conversation]) -> list[tuple[Transcript, Sequence[EndedTurn]]]:
    """Make the transcript and the turns of each conversation from its log."""
    made = []
    for conversation in conversations:
        transcript = Transcript()
        for entry in await conversation.events():
            transcript.add(entry)
        made.append((transcript, await conversation.turns()))
    return made


async def measure(loop: CountingLoop, database: Path, count: int, turns: int) -> tuple[Resting, Resting]:
    """Measure agents that have had these turns, and the same agents in an engine that has just read them."""
    async with Engine.open(database, model=Model()) as engine:
        warm = [await agent(engine, -number, turns) for number in range(1, WARM_UP + 1)]
        before = await settle(loop)

        async def make() -> list[Conversation]:
            made = [await agent(engine, number, turns) for number in range(count)]
            await settle(loop)
            return made

        each, made = await allocated(make)
        after = await settle(loop)
        transcript, _ = await allocated(lambda: transcripts(made))
        used = Resting(each, transcript, after[0] - before[0], after[1] - before[1])
        ids = [conversation.id for conversation in made]
        del made, warm
    async with Engine.open(database, model=Model()) as engine:
        await read(engine, [ids.pop() for _ in range(min(WARM_UP, count // 2))])
        before = await settle(loop)
        each, made = await allocated(lambda: read(engine, ids))
        after = await settle(loop)
        return used, Resting(each, 0, after[0] - before[0], after[1] - before[1])


async def read(engine: Engine, ids: list[str]) -> list[Conversation]:
    """Return handles on these conversations."""
    return [await engine.get(each) for each in ids]


def measured(count: int, turns: int) -> tuple[Resting, Resting]:
    """Measure in an event loop of its own."""
    tracemalloc.start()
    loop = CountingLoop()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return loop.run_until_complete(measure(loop, Path(folder) / "agents.db", count, turns))
    finally:
        loop.close()
        tracemalloc.stop()


def figures(count: int, turns: int) -> Iterator[Figure]:
    """Measure agents that have had so many turns."""
    used, loaded = measured(count, turns)
    yield Figure(f"{count} agents after {turns} turns: memory for each", f"{used.each:.0f} bytes")
    yield Figure("  the baseline, its transcript alone", f"{used.transcript:.0f} bytes")
    ratio = f", {used.each / used.transcript:.2f} times"
    beyond = at_most("  beyond its transcript", used.beyond, MOST, "bytes", ratio)
    yield beyond if turns == 1 else Figure(beyond.what, beyond.value)
    yield at_most("  tasks of all", used.tasks, 0, "")
    yield at_most("  timers of all", used.timers, 0, "")
    yield at_most("  read from the database: memory for each", loaded.each, MOST, "bytes")
    yield at_most("  tasks and timers of all", loaded.tasks + loaded.timers, 0, "")


def main() -> None:
    """Print what agents at rest cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few agents")
    count = 6 if parser.parse_args().quick else 1000
    for turns in (1, 5):
        for figure in figures(count, turns):
            print(figure)


if __name__ == "__main__":
    main()
