"""Ten thousand conversations live in one process: what each of them costs at rest, and what a turn costs among them.

A server holds the conversations of its users, nearly all of which rest at any moment. Here one engine creates 10,000
of them, each has the standard turn, and the program holds a handle on each. Then the same database is opened again, and
a sample of them is loaded anew.

    python benchmarks/live_conversations.py            all of it, about a minute
    python benchmarks/live_conversations.py --quick    a few conversations, to see that it works; its figures say little

How to read it: tracemalloc counts what Python has allocated for each of a sample of the conversations, which does not
depend on the machine; the resident memory of the process is what the operating system gave it for all the others. Both
contain the transcript of the turn, which is in memory because it was said in this process; conversations that were
opened again have none until somebody asks for it. A turn among 10,000 conversations is measured as one of a few
conversations that take turns one after the other, and so is one among ten; their processor times are compared.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from counting_loop import CountingLoop
from figures import Figure, at_most, run
from idle_agents import allocated, settle
from standard_turn import Model, fresh, opened

from peers.standard import REPLIED, SAID, SYSTEM
from turnwise import Conversation, Engine

AT_ONCE = 100
"""How many conversations are created at the same time."""

MEMORY, LOADED_MEMORY = 20480.0, 4096.0
"""Bytes that a conversation may take at rest: one with a turn that was said in this process, and one that was opened
again. The first is mostly its transcript."""

RATIO = 1.2
"""What a turn among all of them may cost, in turns among ten."""


@dataclass(frozen=True)
class Sizes:
    """How many conversations there are, how many of them tracemalloc counts, and the turns that are compared."""

    conversations: int = 10_000
    traced: int = 300
    few: int = 10
    turns: int = 300


QUICK = Sizes(conversations=30, traced=5, few=2, turns=4)


@dataclass
class Live:
    """What was measured: bytes for each conversation by tracemalloc and by the operating system, tasks and timers of
    all, and processor time of a turn among few and among all of them, in seconds."""

    traced: float = 0.0
    resident: float = 0.0
    loaded: float = 0.0
    running: int = 0
    first_turns: float = 0.0
    among_few: float = 0.0
    among_all: float = 0.0


def resident() -> int:
    """Return the bytes of memory that the process has now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


async def talk(engine: Engine, count: int) -> list[Conversation]:
    """Create conversations that have had a turn."""

    async def one() -> Conversation:
        conversation = await engine.create(system=SYSTEM)
        turn = await conversation.send(SAID)
        assert turn.reply == REPLIED
        return conversation

    made: list[Conversation] = []
    while len(made) < count:
        made += await asyncio.gather(*(one() for _ in range(min(AT_ONCE, count - len(made)))))
    return made


async def turn_among(conversations: Sequence[Conversation], turns: int) -> float:
    """Return the processor time of a turn, in seconds: conversations take turns one after the other."""
    seconds = []
    for turn in range(turns):
        begun = process_time()
        await conversations[turn % len(conversations)].send(SAID)
        seconds.append(process_time() - begun)
    return median(seconds)


async def live(loop: CountingLoop, database: Path, sizes: Sizes) -> Live:
    """Measure conversations that were created by this engine, and the same ones in an engine that opens them."""
    measured = Live()
    async with opened(database, Model()) as engine:
        await turn_among(await talk(engine, sizes.few), sizes.turns)  # so that everything is imported and allocated
        before = sum(await settle(loop))
        few = await talk(engine, sizes.few)
        measured.among_few = await turn_among(few, sizes.turns)
        tracemalloc.start()
        measured.traced, traced = await allocated(lambda: talk(engine, sizes.traced))
        tracemalloc.stop()
        gc.collect()
        memory, begun = resident(), perf_counter()
        others = await talk(engine, sizes.conversations - len(few) - len(traced))
        measured.first_turns = perf_counter() - begun
        gc.collect()
        measured.resident = (resident() - memory) / len(others)
        measured.running = sum(await settle(loop)) - before
        measured.among_all = await turn_among(others[: sizes.few], sizes.turns)
        ids = [conversation.id for conversation in (*traced, *others)]
        del few, traced, others
    await open_again(database, ids, sizes, measured)
    return measured


async def open_again(database: Path, ids: list[str], sizes: Sizes, measured: Live) -> None:
    """Measure the memory of conversations whose heads were read from the database."""
    async with opened(database, Model()) as engine:

        async def read(some: list[str]) -> list[Conversation]:
            return [await engine.get(each) for each in some]

        warm = await read(ids[:AT_ONCE])
        tracemalloc.start()
        measured.loaded, traced = await allocated(lambda: read(ids[-sizes.traced :]))
        tracemalloc.stop()
        del warm, traced


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Yield the figures of conversations that live in one process."""
    loop = CountingLoop()
    try:
        found = loop.run_until_complete(live(loop, fresh(folder), sizes))
    finally:
        loop.close()
    count = sizes.conversations
    yield at_most(f"{count:,} live conversations: memory of each", found.traced, MEMORY, "bytes", name="live-memory")
    yield Figure(
        "  resident memory of each",
        f"{found.resident:,.0f} bytes",
        name="live-resident",
        number=found.resident,
        unit="bytes",
    )
    yield at_most("  opened again: memory of each", found.loaded, LOADED_MEMORY, "bytes", name="live-memory-loaded")
    yield at_most("  tasks and timers of all", found.running, 0, "", name="live-tasks")
    rate = (count - sizes.few - sizes.traced) / found.first_turns
    yield Figure("  created, with a first turn each", f"{rate:.0f}/s", name="live-rate", number=rate, unit="turns/s")
    times = f" ({found.among_few * 1e3:.2f}, {found.among_all * 1e3:.2f} ms)"
    ratio = found.among_all / found.among_few
    yield at_most(f"  a turn among them, beside {sizes.few}", ratio, RATIO, "times", times, name="live-turn-ratio")


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
