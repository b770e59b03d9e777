"""What it costs that 10,000 conversations have a schedule: one task, one timer, and no memory for each of them.

    python benchmarks/wake_ups.py            all of it, a minute or so
    python benchmarks/wake_ups.py --quick    a few conversations, to see that it works; its times say little

The conversations are stored by one engine, and another one opens the file. Tasks and timers of its event loop are
counted, and the memory of Python is compared with that of an engine which opens an empty file. Then a tenth of the
conversations is due at once: what it takes until the last of their turns has ended stands beside the time that as many
messages take, sent by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from counting_loop import CountingLoop
from figures import Figure, at_most

from turnwise import Engine
from turnwise.effects.clock import SystemClock
from turnwise.testing import FunctionLlm, ManualClock

BEGAN = SystemClock().now()
"""When the conversations were created, as they see it."""

AT_ONCE = 100
"""How many conversations are created, or asked, at the same time."""


@dataclass(frozen=True)
class Sizes:
    """How many conversations have a schedule, and how many of them are due at once."""

    scheduled: int = 10_000
    due: int = 1_000


QUICK = Sizes(scheduled=20, due=2)


def answers(request: Any) -> str:
    """The model's answer to any request."""
    return "I have looked."


async def fill(path: Path, sizes: Sizes) -> None:
    """Store the conversations: some are due after an hour, the others later."""
    async with Engine.open(path, model=FunctionLlm(answers), clock=ManualClock(BEGAN)) as engine:

        async def create(number: int) -> None:
            wait = timedelta(hours=1) if number < sizes.due else timedelta(hours=2, seconds=number)
            await engine.create(role="background", every=wait, task="Look around.")

        await in_batches(create, sizes.scheduled)


async def in_batches(work: Callable[[int], Any], count: int) -> None:
    """Do so many pieces of work, some of them at the same time."""
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(work(number) for number in range(start, min(count, start + AT_ONCE))))


async def settled() -> None:
    """Let everything happen that happens by itself, in threads too."""
    for _ in range(20):
        await asyncio.sleep(0.005)
    gc.collect()


async def held_by_engine(path: Path) -> tuple[int, int, int]:
    """The tasks and timers of the event loop beside this one, and the bytes of Python, while an engine sleeps."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    tracemalloc.start()
    async with Engine.open(path, model=FunctionLlm(answers)):
        await settled()
        counted = len(asyncio.all_tasks()) - 1, loop.timers, tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return counted


async def look(path: Path) -> float:
    """The median of the seconds that it takes to find the earliest wake-ups."""
    async with Engine.open(path, clock=ManualClock(BEGAN)) as engine:
        seconds = []
        for _ in range(50):
            began = perf_counter()
            await engine.store.scheduled(64)
            seconds.append(perf_counter() - began)
    return statistics.median(seconds)


async def wake(path: Path, sizes: Sizes) -> tuple[float, float]:
    """The seconds until all that are due have had their turn, and until as many messages were answered."""
    clock, asked, done = ManualClock(BEGAN), 0, asyncio.Event()

    def count(request: Any) -> str:
        nonlocal asked
        asked += 1
        if asked == sizes.due:
            done.set()
        return "I have looked."

    async with Engine.open(path, model=FunctionLlm(count), clock=clock) as engine:
        await clock.until_asleep()
        began = perf_counter()
        await clock.advance(3600)
        await done.wait()
        woken = perf_counter() - began
        conversations = [await engine.create() for _ in range(sizes.due)]
        began = perf_counter()
        await in_batches(lambda number: conversations[number].send("Look around."), sizes.due)
        return woken, perf_counter() - began


async def measured(folder: Path, sizes: Sizes) -> list[Figure]:
    """Every figure."""
    empty, full, few = folder / "empty.db", folder / "full.db", folder / "few.db"
    await fill(full, sizes)
    await fill(few, Sizes(scheduled=10, due=0))
    await held_by_engine(empty)  # what is loaded only once is loaded now
    no_tasks, no_timers, no_bytes = await held_by_engine(empty)
    tasks, timers, size = await held_by_engine(full)
    many_seconds, few_seconds = await look(full), await look(few)
    woken, sent = await wake(full, sizes)
    scheduled = f"{sizes.scheduled} scheduled conversations"
    return [
        at_most(f"{scheduled}, tasks", tasks - no_tasks, 1, "more"),
        at_most(f"{scheduled}, timers", timers - no_timers, 1, "more"),
        at_most("memory of Python, for each of them", (size - no_bytes) / sizes.scheduled, 16, "bytes"),
        at_most(f"to find the earliest, of {sizes.scheduled} beside of 10", many_seconds / few_seconds, 3, "times"),
        at_most(f"{sizes.due} turns by wake-ups, beside as many by messages", woken / sent, 3, "times"),
        Figure("", f"{woken:.2f} s and {sent:.2f} s"),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="What the schedules of 10,000 conversations cost.")
    parser.add_argument("--quick", action="store_true", help="a few conversations only")
    sizes = QUICK if parser.parse_args().quick else Sizes()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=CountingLoop) as runner:
        for figure in runner.run(measured(Path(folder), sizes)):
            print(figure)


if __name__ == "__main__":
    main()
