"""How a long turn and a long conversation slow down: does a round cost what it adds, or what was said before it?

An agent that works on its own asks its model 50 or 100 times in one turn, and each request holds everything so far.
Here one turn has a thousand rounds: a message of a user, then a thousand times a request to the model and a call of
a tool. A second measurement has a thousand turns of one conversation, each of them the standard turn. Model and tool
answer at once, and each step is committed to a file, so what is left is turnwise and its store.

    python benchmarks/long_turn.py             about half a minute
    python benchmarks/long_turn.py --quick     a few rounds, to see that it works; its figures say little

The processor time from one request to the next is that of a round. The median of the first fifth is compared with that
of the last: a request is a list of all messages, which has to be copied, so a small growth remains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from figures import Figure, at_most, run
from standard_turn import Model, find_table, fresh

from peers.standard import ASKED, REPLIED, SAID, SYSTEM
from turnwise import Engine, Limits, ModelAnswer, ModelRequest, Policy, Token
from turnwise.testing import call, reply

ROUND_GROWTH = 1.5
"""What a round of the last fifth may cost, in rounds of the first fifth. Requests then have up to 2,000 messages."""

TURN_GROWTH = 1.2
"""What a turn of the last fifth may cost, in turns of the first fifth."""

POINTS = 100
"""The points of a plot."""


@dataclass(frozen=True)
class Sizes:
    """How long the turn and the conversation are."""

    rounds: int = 1000
    turns: int = 1000


QUICK = Sizes(rounds=10, turns=10)


@dataclass(frozen=True)
class Moment:
    """The processor time and the time of the clock, in seconds."""

    busy: float = field(default_factory=process_time)
    clock: float = field(default_factory=perf_counter)


@dataclass
class Worker:
    """Calls the tool in each of so many rounds, and then answers. `asked` has the moment of each request."""

    rounds: int
    asked: list[Moment] = field(default_factory=list)
    name = "instant"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Call the tool until the work is done."""
        self.asked.append(Moment())
        if len(self.asked) <= self.rounds:
            return call("find_table", **{**ASKED, "party": len(self.asked)})
        return reply(REPLIED)


async def work(folder: Path, rounds: int) -> list[Moment]:
    """Return the moments between the rounds of one turn."""
    model = Worker(rounds)
    async with Engine.open(fresh(folder), model=model, tools=[find_table]) as engine:
        conversation = await engine.create(system=SYSTEM, policy=Policy(limits=Limits(requests=rounds + 1)))
        turn = await conversation.send(SAID)
        assert turn.reply == REPLIED
    return model.asked


async def talk(folder: Path, turns: int) -> list[Moment]:
    """Return the moments between the turns of one conversation."""
    async with Engine.open(fresh(folder), model=Model(), tools=[find_table]) as engine:
        conversation = await engine.create(system=SYSTEM)
        moments = [Moment()]
        for _ in range(turns):
            await conversation.send(SAID)
            moments.append(Moment())
    return moments


def growth(what: str, name: str, moments: Sequence[Moment], aim: float) -> Iterator[Figure]:
    """Compare the last fifth with the first, in processor time and by the clock."""
    pairs = list(pairwise(moments))
    busy = [(after.busy - before.busy) * 1e3 for before, after in pairs]
    clock = [(after.clock - before.clock) * 1e3 for before, after in pairs]
    fifth = max(1, len(pairs) // 5)
    early, late = median(busy[:fifth]), median(busy[-fifth:])
    yield Figure(f"a {what}, first fifth, last", f"{early:.2f} ms, {late:.2f} ms", name=f"{name}-late", number=late)
    width = -(-len(busy) // POINTS)
    series = tuple((float(at), median(busy[at : at + width])) for at in range(0, len(busy), width))
    yield at_most(f"  the late {what}", late / early, aim, "of the early one", name=name, series=series)
    ratio = median(clock[-fifth:]) / median(clock[:fifth])
    yield Figure("  by the clock", f"{ratio:.2f} of the early one", name=f"{name}-wall", number=ratio)


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """The figures of a long turn, then those of a long conversation."""
    yield from growth("round", "long-turn-growth", asyncio.run(work(folder, sizes.rounds)), ROUND_GROWTH)
    yield from growth("turn", "long-conversation-growth", asyncio.run(talk(folder, sizes.turns)), TURN_GROWTH)


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
