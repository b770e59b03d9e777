"""Where the time of a standard turn goes: to the machine, the engine, the store, SQLite or the libraries between them.

    python benchmarks/turn_profile.py             half a minute
    python benchmarks/turn_profile.py --quick     a few turns, to see that it works

Python's profiler sees every function that the event loop's thread calls, and slows Python functions down more than what
is written in C. So the shares are approximate, and the numbers of calls are exact. A share counts a function alone,
without those that it calls, and waiting for timers and other threads is left out. What SQLite takes has the waiting for
the disk in it, where the loop's thread commits; where another thread does, it is not seen here.

| part | what is done |
|---|---|
| one | one conversation, one turn after the other |
| many | several conversations at once |
"""

from __future__ import annotations

import asyncio
import pstats
import re
from collections import Counter
from collections.abc import Iterator
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, run
from standard_turn import Model, fresh, opened, say

from peers.standard import SYSTEM

TREE = str(Path(__file__).resolve().parent.parent)

GROUPS = {
    "SQLite, and waiting for the disk": r"sqlite3\.",
    "": r"select\.(epoll|poll|kqueue|select)|poll' of|_thread\.lock",
    "pydantic": r"pydantic",
    "SQLAlchemy": r"sqlalchemy",
    "the machine (states/)": r"/states/",
    "the engine (engine/)": r"/engine/",
    "effects (effects/)": r"/effects/",
    "the store (persistence/)": r"/persistence/",
    "this benchmark": r"/benchmarks/|/testing/",
    "asyncio": r"asyncio|_contextvars|/anyio/|selectors|_socket",
}
"""What a function belongs to, by its file, or by its name if it is written in C. The first that fits counts; waiting
has no name."""

REST = "other functions of Python"


@dataclass(frozen=True)
class Sizes:
    """How much is profiled."""

    turns: int = 200
    conversations: int = 20
    turns_each: int = 10


QUICK = Sizes(turns=3, conversations=2, turns_each=2)


def group_of(file: str, function: str) -> str:
    """Return the group of a function."""
    where = file.replace("/.typing/turnwise/", "/").removeprefix(TREE) if file != "~" else function
    return next((name for name, pattern in GROUPS.items() if re.search(pattern, where)), REST)


async def profiled(file: Path, conversations: int, turns: int) -> pstats.Stats:
    """Profile so many turns of each conversation, all at once, after some that are not profiled."""
    profile = Profile()
    async with opened(file, Model()) as engine:
        made = [await engine.create(system=SYSTEM) for _ in range(conversations)]
        await asyncio.gather(*(say(engine, each.id, 5) for each in made))
        profile.enable()
        await asyncio.gather(*(say(engine, each.id, turns) for each in made))
        profile.disable()
    return pstats.Stats(profile)


def shares(name: str, what: str, stats: pstats.Stats, turns: int) -> Iterator[Figure]:
    """Sum up the time and the calls of each group."""
    seconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for (file, _, function), (_, count, own, *_) in stats.stats.items():  # type: ignore[attr-defined]
        group = group_of(file, function)
        seconds[group] += own
        calls[group] += count
    del seconds[""]
    total = sum(seconds.values())
    yield Figure(what, f"{sum(calls.values()) / turns:.0f} calls", name=f"calls-{name}", number=calls.total() / turns)
    for number, (group, own) in enumerate(seconds.most_common()):
        share = own / total * 100
        text = f"{share:.0f} %, {calls[group] / turns:.0f} calls"
        yield Figure(f"  {group}", text, name=f"profile-{name}-{number}", number=share, unit="%")


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Profile one conversation, then several at once."""
    stats = asyncio.run(profiled(fresh(folder), 1, sizes.turns))
    yield from shares("one", "a turn of one conversation", stats, sizes.turns)
    stats = asyncio.run(profiled(fresh(folder), sizes.conversations, sizes.turns_each))
    together = sizes.conversations * sizes.turns_each
    yield from shares("many", f"a turn of {sizes.conversations} conversations at once", stats, together)


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
