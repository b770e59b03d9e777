"""The standard turn, and the floor that it is compared with: what the benchmarks of durable turns have in common."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from peers.standard import ASKED, FOUND, QUESTION, REPLIED, SAID, SYSTEM, TEXTS
from turnwise import Engine, ModelAnswer, tool
from turnwise.testing import call, reply


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> str:
    """Look for free tables at restaurants nearby."""
    return FOUND


class Model:
    """Answers at once: a message with a call of the tool, a result with a reply. Notes when it was asked last."""

    name = "instant"

    def __init__(self) -> None:
        self.asks = False
        """Whether it answers a message with a question to the person instead."""
        self.asked_at = 0.0

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn."""
        self.asked_at = perf_counter()
        if request.messages[-1]["role"] == "tool":
            return reply(REPLIED)
        if self.asks:
            options = [{"label": "Kikunoi"}, {"label": "Nobu"}]
            return call("ask_user_question", questions=[{"question": QUESTION, "header": "Table", "options": options}])
        return call("find_table", **ASKED)


class Floor:
    """The best that SQLite alone did in this run."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def measure(self, folder: Path, turns: int) -> None:
        """Look once more."""
        self.rates.append(alone(folder, turns))

    def around(self, folder: Path, turns: int, rounds: int) -> Iterator[int]:
        """The rounds of something that is compared with the floor, which is measured before and after each."""
        self.measure(folder, turns)
        for each in range(rounds):
            yield each
            self.measure(folder, turns)

    @property
    def rate(self) -> float:
        """Turns a second."""
        return max(self.rates)

    def __str__(self) -> str:
        return f"{self.rate:.0f} turns/s (of {len(self.rates)}: {min(self.rates):.0f} to {self.rate:.0f})"


FLOOR = Floor()


def alone(folder: Path, turns: int) -> float:
    """Turns a second of SQLite alone."""
    file = Path(tempfile.mkdtemp(dir=folder)) / "floor.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, payload TEXT)")
        connection.execute("CREATE TABLE heads (id INTEGER PRIMARY KEY, seq INTEGER)")
        connection.execute("INSERT INTO heads VALUES (1, 0)")
        begun = perf_counter()
        for seq in range(4 * turns):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE heads SET seq = ? WHERE id = 1", (seq,))
            connection.execute("INSERT INTO events VALUES (?, ?)", (seq, TEXTS[seq % 4]))
            connection.execute("COMMIT")
        return turns / (perf_counter() - begun)


def opened(file: Path, model: Model) -> Engine:
    """An engine over this file, with what the standard turn needs."""
    return Engine.open(file, model=model, tools=[find_table, "ask_user_question"])


def fresh(folder: Path) -> Path:
    """A database that is not there yet."""
    return Path(tempfile.mkdtemp(dir=folder)) / "turns.db"


async def timed(folder: Path, turns: int) -> list[tuple[float, float]]:
    """The seconds that each turn of a new conversation took, and those of them that the processor worked."""
    seconds = []
    async with opened(fresh(folder), Model()) as engine:
        conversation = await engine.create(system=SYSTEM)
        for _ in range(turns):
            begun, busy = perf_counter(), process_time()
            turn = await conversation.send(SAID)
            seconds.append((perf_counter() - begun, process_time() - busy))
            assert turn.reply == REPLIED
    return seconds


async def written(file: Path, turns: int) -> str:
    """The id of a new conversation of so many turns, in a database that is closed again."""
    async with opened(file, Model()) as engine:
        conversation = await engine.create(system=SYSTEM)
        await say(engine, conversation.id, turns)
    return conversation.id


async def say(engine: Engine, conversation_id: str, turns: int) -> None:
    """So many turns more."""
    conversation = await engine.get(conversation_id)
    for _ in range(turns):
        await conversation.send(SAID)
