"""What each wait costs a conversation beyond the time that is waited: after a pause the processor's caches are cold.

    python benchmarks/pauses.py            a quarter of a minute
    python benchmarks/pauses.py --quick    a few turns, to see that it works

Standard turns in memory, where nothing is waited for, beside the same turns whose model and tool sleep for so short a
time that only the going to sleep counts. The processor time of the pause itself, measured without the library, is
subtracted; what is left is how much slower the same instructions run after it. A conversation alone on a disk pauses at
each of its commits. Where many conversations run at once, the next one goes on instead, with warm caches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from figures import Figure, run
from standard_turn import Model

from peers.standard import FOUND, REPLIED, SAID, SYSTEM
from turnwise import Engine, ModelAnswer, Tool, tool

SLEEP = 50e-6
"""Seconds of a pause: less than a commit waits for a quick disk."""

PAUSES = 3
"""The pauses of a turn: two answers of the model, and the tool."""


@dataclass(frozen=True)
class Sizes:
    """How many turns are held in each round."""

    turns: int = 200
    rounds: int = 5


QUICK = Sizes(turns=3, rounds=1)


class PausingModel(Model):
    """The model of the standard turn, which calls `pause` before each answer."""

    def __init__(self, pause: Callable[[], None]) -> None:
        super().__init__()
        self._pause = pause

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn, after a pause."""
        self._pause()
        return await super().complete(request, show)


def pausing_tool(pause: Callable[[], None]) -> Tool:
    """Return the tool of the standard turn, which calls `pause` before it returns."""

    @tool(crash="pure")
    async def find_table(cuisine: str, time: str, party: int) -> str:
        """Look for free tables at restaurants nearby."""
        pause()
        return FOUND

    return find_table


async def turns(count: int, pause: Callable[[], None]) -> float:
    """Return the seconds of processor time that each turn of a new conversation takes, after some that are not
    counted."""
    async with Engine.open("sqlite://", model=PausingModel(pause), tools=[pausing_tool(pause)]) as engine:
        conversation = await engine.create(system=SYSTEM)
        for number in range(count + count // 4):
            if number == count // 4:
                began = process_time()
            assert (await conversation.send(SAID)).reply == REPLIED
        return (process_time() - began) / count


def alone(count: int) -> float:
    """Return the seconds of processor time that one pause takes where hardly anything is done between them."""
    began = process_time()
    for _ in range(count):
        _sleep()
    return (process_time() - began) / count


def _sleep() -> None:
    time.sleep(SLEEP)


def _go_on() -> None:
    pass


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Compare turns with and without pauses, round by round."""
    rounds = [
        (asyncio.run(turns(sizes.turns, _go_on)), asyncio.run(turns(sizes.turns, _sleep)), alone(sizes.turns * PAUSES))
        for _ in range(sizes.rounds)
    ]
    without, paused, bare = (median(column) * 1e6 for column in zip(*rounds, strict=True))
    each = (paused - without) / PAUSES
    note = f"{each:.0f} µs beside {bare:.0f} µs of the pause alone"
    yield Figure("a turn in memory, processor time", f"{without:.0f} µs", name="pauses-none", number=without, unit="µs")
    what = f"  its growth for each pause of {SLEEP * 1e6:.0f} µs"
    yield Figure(what, note, name="pauses-each", number=each, unit="µs")
    lost = (each - bare) / without
    yield Figure("  lost to cold caches by each pause", f"{lost:.2f} of a turn", name="pauses-lost", number=lost)


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
