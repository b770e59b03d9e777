"""What a turn costs that survives a crash, beside the least that any program must do to keep four steps on a disk.

The standard turn has four steps, each stored before anything is done about it: a person says something, the model calls
a tool, the tool returns, the model replies. Model and tool answer at once and say 573 bytes of text together with the
person, so what is left is turnwise itself and the disk. The floor is SQLite alone: four transactions a turn, each with
the row of a step and the new head of its conversation, in a write-ahead log with `synchronous=FULL`, like turnwise's.
It is measured between the rounds of everything that is compared with it, on the same disk.

    python benchmarks/durable_turn.py                 all parts, a minute or two
    python benchmarks/durable_turn.py long many       some of them
    python benchmarks/durable_turn.py --quick         a few turns of each, to see that it works; its figures say little

How to read it: each line is one figure, its aim beside it, and whether it is met. The ratios say more than the times,
which a busy machine stretches; of several rounds the best one counts, as everything else in them is noise, and of
single moments the median. Where the floor's own rounds lie far apart something else was using the disk: a ratio then
says little, and it is better to run again. An aim that is missed does not fail the program: to run it is to look.

While the write-ahead log still grows, in the first 50 turns or so, the disk takes longer for each. Whether a turn
takes longer the longer the conversation is shows best where the processor's time alone is counted.

A request to a model holds the whole history, so to copy and send it takes longer the longer the conversation is, by
nature. The model here is an object of the `Llm` port: what litellm does with a request is not in the figures.

| part | what it measures |
|---|---|
| long | one conversation of 200 turns: turns a second, and whether the last turns take longer than the first |
| syncs | how often a turn waits for the disk, counted by strace; what checkpoints add is told apart |
| size | how much a turn adds to the database file, and whether that grows with the conversation |
| many | 100 conversations of 10 turns, all at once |
| ready | how soon after opening the database a conversation of 200 turns takes its next message, and one of 2,000 |
| answer | how soon the answer to a question is on its way to the model |
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from figures import Figure, at_least, at_most
from standard_turn import FLOOR, QUESTION, SAID, SYSTEM, Model, fresh, opened, say, timed, written

from turnwise import Conversation


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    turns: int = 200
    early: int = 10
    """The turn near the beginning that one near the end is compared with."""
    around: int = 5
    """How many turns on either side of those two their medians take in."""
    growth: tuple[int, ...] = (20, 200, 1000)
    conversations: int = 100
    turns_each: int = 10
    counted: int = 20
    """Turns that strace watches: few enough to end before the first checkpoint."""
    rounds: int = 5
    """Of what is compared with the floor."""
    repeats: int = 15
    """Of what takes milliseconds."""
    lengths: tuple[int, int] = (20, 2000)
    """Turns of the two conversations whose first steps after loading are compared."""


QUICK = Sizes(
    turns=12,
    early=3,
    around=2,
    growth=(5, 10),
    conversations=4,
    turns_each=2,
    counted=3,
    rounds=1,
    repeats=2,
    lengths=(2, 5),
)


Part = Callable[[Path, Sizes], Iterator[Figure]]


# --- the parts


def long(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """One conversation, from its first turn to its last."""
    warm(folder)
    turns = sizes.turns + sizes.around
    rounds = [asyncio.run(timed(folder, turns)) for _ in FLOOR.around(folder, sizes.turns, sizes.rounds)]
    best = max(sizes.turns / sum(took for took, _ in seconds[: sizes.turns]) for seconds in rounds)
    yield Figure("the floor", str(FLOOR))
    yield Figure(f"one conversation of {sizes.turns} turns", f"{best:.0f} turns/s")
    yield at_least("  its turns a second", best / FLOOR.rate, 0.5, "of the floor")

    def near(turn: int, clock: int) -> float:
        window = slice(turn - 1 - sizes.around, turn + sizes.around)
        return min(statistics.median(one[clock] for one in seconds[window]) for seconds in rounds)

    for clock, where in enumerate(("", ", processor alone")):
        early, late = near(sizes.early, clock), near(sizes.turns, clock)
        yield Figure(f"  turn {sizes.early}, turn {sizes.turns}{where}", f"{early * 1e3:.2f} ms, {late * 1e3:.2f} ms")
        yield at_most(f"  the late turn{where}", late / early, 1.3, "of the early one")


def syncs(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """What a process that talks asks of the disk."""
    strace = shutil.which("strace")
    if strace is None:
        yield Figure("syncs a turn", "not counted: there is no strace on the PATH")
        return
    seen = folder / "syncs.txt"
    tracing = [strace, "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(seen)]
    command = [*tracing, sys.executable, __file__, "--watched", str(folder), str(sizes.counted)]
    watched = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if watched.returncode:
        yield Figure("syncs a turn", f"not counted: {watched.stderr.strip().splitlines()[-1]}")
        return
    _, turns, _ = re.split(r"\n.*(?:fsync|fdatasync)\(\d+<[^>]*/mark>.*", seen.read_text())
    log, file = (len(re.findall(rf"sync\(\d+<[^>]*/turns\.db{ending}>", turns)) for ending in ("-wal", ""))
    note = f" (checkpoints: {file})" if file else ""
    yield at_most("syncs a turn, checkpoints apart", log / sizes.counted, 4, "syncs", note)


async def be_watched(folder: Path, turns: int) -> None:
    """What strace looks at: a warm conversation that says so many turns between two marks."""
    async with opened(fresh(folder), Model()) as engine:
        conversation = await engine.create(system=SYSTEM)
        await say(engine, conversation.id, 1)
        mark(folder)
        await say(engine, conversation.id, turns)
        mark(folder)


def mark(folder: Path) -> None:
    """Leave a sign among the calls that strace notes."""
    with (folder / "mark").open("w") as file:
        os.fsync(file.fileno())


def size(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """What a conversation leaves in the database file, once the write-ahead log has gone into it."""
    file = fresh(folder)
    conversation_id, said = asyncio.run(written(file, 0)), 0
    empty = file.stat().st_size
    each = []
    for turns in sizes.growth:
        asyncio.run(say_more(file, conversation_id, turns - said))
        said = turns
        each.append((file.stat().st_size - empty) / turns)
        yield at_most(f"bytes of database a turn, at {turns} turns", each[-1], 3000, "bytes")
    # At 20 turns a page more or less in each of the trees is a fifth of all.
    yield at_most("  the most of these", max(each) / min(each), 1.25, "of the least")


async def say_more(file: Path, conversation_id: str, turns: int) -> None:
    """Open the database, say so many turns more, and close it."""
    async with opened(file, Model()) as engine:
        await say(engine, conversation_id, turns)


def many(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Many conversations at once, in one engine."""
    warm(folder)
    each, turns = sizes.conversations, sizes.turns_each
    best = max(asyncio.run(at_once(folder, each, turns)) for _ in FLOOR.around(folder, sizes.turns, sizes.rounds))
    yield Figure("the floor", str(FLOOR))
    yield Figure(f"{each} conversations of {turns} turns at once", f"{best:.0f} turns/s")
    yield at_least("  their turns a second", best / FLOOR.rate, 2, "of the floor")


async def at_once(folder: Path, conversations: int, turns: int) -> float:
    """Turns a second of all conversations together."""
    async with opened(fresh(folder), Model()) as engine:
        made = [await engine.create(system=SYSTEM) for _ in range(conversations)]
        begun = perf_counter()
        await asyncio.gather(*(say(engine, conversation.id, turns) for conversation in made))
        return conversations * turns / (perf_counter() - begun)


def ready(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """A conversation in a database that was closed, up to its next message; and the same of a far longer one."""
    file = fresh(folder)
    ids = [asyncio.run(written(file, turns)) for turns in (sizes.turns, *sizes.lengths)]
    times = [asyncio.run(come_back(file, ids, swapped=bool(n % 2))) for n in range(sizes.repeats)]
    opening, getting, storing = (statistics.median(one[n] for one in times) * 1e3 for n in range(3))
    both = statistics.median(one[0] + one[1] for one in times) * 1e3
    yield Figure("Engine.open, get", f"{opening:.1f} ms, {getting:.1f} ms")
    yield Figure("  then, until the next message is stored", f"{storing:.1f} ms")
    yield at_most(f"  {sizes.turns} turns, ready for the next message", both, 10, "ms")
    short, long = (statistics.median(one[n] for one in times) * 1e3 for n in (3, 4))
    few, many = sizes.lengths
    yield Figure(f"a step after loading {few}, {many} turns", f"{short:.2f} ms, {long:.2f} ms")
    yield at_most("  of the long conversation", long / short, 2, "of the short one")


async def come_back(file: Path, ids: list[str], swapped: bool) -> list[float]:
    """The seconds until the engine is open, until the first conversation is loaded, and until a message is stored in
    it; then, for each of the two others, until it is loaded and a message is stored. `swapped`: the last one first."""
    begun = perf_counter()
    engine = await opened(file, Model())
    is_open = perf_counter()
    conversation = await engine.get(ids[0])
    seconds = [is_open - begun, perf_counter() - is_open, await store_message(conversation)]
    steps = []
    for other in reversed(ids[1:]) if swapped else ids[1:]:
        begun = perf_counter()
        conversation = await engine.get(other)
        loading = perf_counter() - begun
        steps.append(loading + await store_message(conversation))
    await engine.close()
    return seconds + (steps[::-1] if swapped else steps)


async def store_message(conversation: Conversation) -> float:
    """The seconds until a message is stored. Returns when its turn has ended."""
    begun = perf_counter()
    message_id = f"again-{begun}"
    turn = await conversation.send(SAID, message_id=message_id, wait=False)
    stored = perf_counter()
    assert turn.status == "running"
    await conversation.send(SAID, message_id=message_id)  # the same message: waits for its turn to end
    return stored - begun


def answer(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """From a person's answer to the request that tells the model."""
    for turns in (0, sizes.turns):
        file = fresh(folder)
        conversation_id = asyncio.run(written(file, turns))
        took = statistics.median(asyncio.run(answered(file, conversation_id, sizes.repeats))) * 1e3
        where = "a new conversation" if not turns else f"a conversation of {turns} turns"
        yield at_most(f"answer to model request, in {where}", took, 5, "ms")


async def answered(file: Path, conversation_id: str, repeats: int) -> list[float]:
    """The seconds from each answer to the call of the model."""
    model, seconds = Model(), []
    model.asks = True
    async with opened(file, model) as engine:
        conversation = await engine.get(conversation_id)
        for _ in range(repeats):
            turn = await conversation.send(SAID)
            assert turn.status == "awaiting_user"
            begun = perf_counter()
            await conversation.answer({QUESTION: "Kikunoi"})
            seconds.append(model.asked_at - begun)
    return seconds


def warm(folder: Path) -> None:
    """Import and compile what the first turn needs, so that it costs nobody's first turn anything."""
    asyncio.run(timed(folder, 3))


PARTS: dict[str, Part] = {part.__name__: part for part in (long, syncs, size, many, ready, answer)}


def main() -> None:
    """Print the figures of the parts asked for."""
    parser = argparse.ArgumentParser(description="What a turn costs that survives a crash.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="a few turns of each, to see that it works")
    parser.add_argument("--folder", type=Path, help="where the databases are written for the while (a disk to measure)")
    parser.add_argument("--watched", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watched:
        asyncio.run(be_watched(Path(given.watched[0]), int(given.watched[1])))
        return
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"there is no part called {', '.join(sorted(unknown))}")
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            for figure in PARTS[name](Path(folder), QUICK if given.quick else Sizes()):
                print(figure, flush=True)


if __name__ == "__main__":
    main()
