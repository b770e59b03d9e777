"""Measures how many events a second a replay takes of conversations that are stored in a SQLite file.

A replay puts every event to the machine again and compares what comes of it with what was stored, so a database of real
conversations is a test of every change of the rules. The baseline reads the same rows with `sqlite3` and parses their
JSON with `json`: what any program must do that looks at them. Both run in turns, and of several rounds the best counts.

    python benchmarks/replay.py            a minute
    python benchmarks/replay.py --quick    a few turns of each kind, to see that it works; its figures say little

| conversations | what a turn of them does |
|---|---|
| standard turns | a message, a call of a tool, its result, a reply |
| questions | a question to the user, and the answer |
| many calls | a round of 20 calls that run side by side |
| sub-agents | three sub-agents, whose conversations are replayed too |
| compactions | like a standard turn; every fifth is followed by a compaction |
| long turn | one turn, with as many rounds as the others have turns |

Only the standard turns have an aim. The processor time is that of the whole process: reading, checking the chain,
decoding, the transitions, writing and comparing.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from figures import Figure, at_least, at_most, run
from standard_turn import Model, find_table, fresh

from peers.standard import ASKED, BOOK, OPTIONS, QUESTION, REPLIED, SAID, SYSTEM
from turnwise import Conversation, Engine, ModelAnswer, Policy
from turnwise.persistence import SqliteStore, replay_conversation
from turnwise.states import Limits
from turnwise.testing import call, calls, reply

CALLS = 20
"""Calls of a tool in the round of `many calls`."""

TASKS = ("Look in the north.", "Look in the south.", "Look in the east.")

ROWS = "SELECT seq, event_id, effect_id, type, version, at, turn, payload, effects, ended, state, chain FROM events"


@dataclass(frozen=True)
class Sizes:
    """How many turns of each kind are stored, and how often each database is replayed."""

    standard: int = 1000
    turns: int = 150
    rounds: int = 5


QUICK = Sizes(standard=5, turns=3, rounds=1)


@dataclass
class Rate:
    """The best of several rounds: events a second, and the microseconds of the processor for an event."""

    events: int = 0
    rate: float = 0.0
    microseconds: float = float("inf")

    def add(self, events: int, seconds: float, busy: float) -> None:
        """Take a round into account."""
        self.events = events
        self.rate = max(self.rate, events / seconds)
        self.microseconds = min(self.microseconds, busy / events * 1e6)


class Talkative(Model):
    """A model that answers a message with `wanted` until it has `results` results, and then with the reply."""

    def __init__(self, wanted: ModelAnswer, results: int = 1) -> None:
        super().__init__()
        self.wanted = wanted
        self.results = results

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the turn. A task of a sub-agent, and a request for a summary, are answered with a text."""
        heard = list(takewhile(lambda message: message["role"] != "user", reversed(request.messages)))
        is_task = request.messages[-1 - len(heard)]["content"] != SAID
        has_results = sum(message["role"] == "tool" for message in heard) >= self.results
        return reply(REPLIED) if is_task or has_results else self.wanted


# --- the conversations


@asynccontextmanager
async def talk(file: Path, model: Model, **rules: Any) -> AsyncIterator[Conversation]:
    """A new conversation in this file."""
    tools = [find_table, "ask_user_question", "spawn_agents"]
    async with Engine.open(file, model=model, tools=tools) as engine:
        yield await engine.create(system=SYSTEM, **rules)


async def standard_turns(file: Path, turns: int) -> None:
    """Store standard turns."""
    async with talk(file, Model()) as conversation:
        for _ in range(turns):
            await conversation.send(SAID)


async def questions(file: Path, turns: int) -> None:
    """Store turns that ask the user."""
    async with talk(file, Model()) as conversation:
        for _ in range(turns):
            await conversation.send(BOOK)
            await conversation.answer({QUESTION: OPTIONS[0]})


async def many_calls(file: Path, turns: int) -> None:
    """Store turns with a round of many calls."""
    wanted = calls(*(call("find_table", **ASKED) for _ in range(CALLS)))
    async with talk(file, Talkative(wanted, CALLS)) as conversation:
        for _ in range(turns):
            await conversation.send(SAID)


async def sub_agents(file: Path, turns: int) -> None:
    """Store turns that start sub-agents."""
    async with talk(file, Talkative(call("spawn_agents", tasks=list(TASKS)))) as conversation:
        for _ in range(turns):
            await conversation.send(SAID)


async def compactions(file: Path, turns: int) -> None:
    """Store standard turns and compactions."""
    async with talk(file, Talkative(call("find_table", **ASKED))) as conversation:
        for turn in range(turns):
            await conversation.send(SAID)
            if turn % 5 == 4:
                await conversation.compact()


async def long_turn(file: Path, turns: int) -> None:
    """Store one turn of many rounds."""
    rules = Policy(limits=Limits(requests=turns + 2))
    async with talk(file, Talkative(call("find_table", **ASKED), turns), policy=rules) as conversation:
        await conversation.send(SAID)


# --- what is measured


async def replayed(file: Path) -> tuple[int, float, float]:
    """Replay all conversations of a file. Returns the events, the seconds, and those of the processor."""
    store = await SqliteStore.open(file, read_only=True)
    try:
        events, begun, busy = 0, perf_counter(), process_time()
        for conversation_id in await store.ids():
            report = await replay_conversation(store, conversation_id)
            assert report.divergence is None, report.divergence.reason
            events += report.events
        return events, perf_counter() - begun, process_time() - busy
    finally:
        await store.close()


def parsed(file: Path) -> tuple[int, float, float]:
    """Read the same rows and parse what they hold, with the standard library alone. Returns the same three."""
    with closing(sqlite3.connect(file)) as connection:
        events, begun, busy = 0, perf_counter(), process_time()
        for row in connection.execute(ROWS):
            for text in row[7:10]:
                if text is not None:
                    json.loads(text)
            events += 1
        return events, perf_counter() - begun, process_time() - busy


def compared(file: Path, rounds: int) -> tuple[Rate, Rate]:
    """Return the rate of the replay, and that of the baseline."""
    ours, bare = Rate(), Rate()
    for _ in range(rounds):
        bare.add(*parsed(file))
        ours.add(*asyncio.run(replayed(file)))
    return ours, bare


KINDS = (questions, many_calls, sub_agents, compactions, long_turn)


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Yield the figures of each kind of conversation."""
    file = fresh(folder)
    asyncio.run(standard_turns(file, sizes.standard))
    ours, bare = compared(file, sizes.rounds)
    note = f" ({ours.events:,} events of standard turns)"
    yield at_least("replay, standard turns", ours.rate, 20_000, "events/s", note, name="replay-rate")
    yield at_most("  processor time of an event", ours.microseconds, 50, "µs", name="replay-processor")
    yield _ratio("standard-turns", ours, bare)
    for store in KINDS:
        kind = store.__name__.replace("_", "-")
        file = fresh(folder)
        asyncio.run(store(file, sizes.turns))
        ours, bare = compared(file, sizes.rounds)
        yield _plain(f"replay, {kind.replace('-', ' ')}", ours.rate, "events/s", f"replay-rate-{kind}", ours.events)
        yield _ratio(kind, ours, bare)


def _plain(what: str, value: float, unit: str, name: str, events: int) -> Figure:
    return Figure(what, f"{value:,.0f} {unit} ({events:,} events)", name=name, number=value, unit=unit)


def _ratio(kind: str, ours: Rate, bare: Rate) -> Figure:
    value = ours.microseconds / bare.microseconds
    text = f"{value:.1f} times ({bare.microseconds:.1f} µs)"
    what = "  processor time, beside sqlite3 and json alone"
    return Figure(what, text, name=f"replay-ratio-{kind}", number=value, unit="times sqlite3 and json")


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
