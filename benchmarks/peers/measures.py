"""Measures one part of one system, and prints what it measured as a line of JSON, with the versions of the system.

    python -m peers.burr long FOLDER '{"turns": 200}'

The process has imported the system and nothing else. Every part checks the replies, and reads the history again from
the closed file where it has written one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any

from .requests import REQUESTS
from .standard import MESSAGES, REPLIED
from .system import NotOffered, System

Part = Callable[[type[System], Path, dict[str, Any]], Awaitable[dict[str, Any]]]


async def long(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """One conversation: the microseconds of each turn, by the clock and of the processor.

    It ends when `turns` are held or `seconds` have passed.
    The file stays in the folder, for `reopen`.
    """
    await warm(make, folder)
    system, file = make(), folder / "long.db"
    await system.open(file)
    key = system.key(await system.create(0))
    await system.close()
    empty = size_of(file)
    await system.open(file)
    conversation, began = await system.resume(key), perf_counter()
    wall, processor = [], []
    while len(wall) < sizes["turns"] and perf_counter() - began < sizes.get("seconds", 1e9):
        clock, busy = perf_counter(), process_time()
        reply = await system.turn(conversation)
        wall.append(microseconds(perf_counter() - clock))
        processor.append(microseconds(process_time() - busy))
        assert reply == REPLIED
    await system.close()
    await check(make, file, {key: len(wall)})
    each = (size_of(file) - empty) / len(wall)
    return {"turns": len(wall), "wall": wall, "processor": processor, "key": key, "bytes": each, **journal(file)}


async def many(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """Many conversations at once: the wall and processor seconds of all turns together."""
    await warm(make, folder)
    system, file = make(), folder / "many.db"
    await system.open(file)
    conversations = [await system.create(number) for number in range(sizes["conversations"])]
    clock, busy = perf_counter(), process_time()
    await asyncio.gather(*(say(system, conversation, sizes["turns"]) for conversation in conversations))
    wall, processor = perf_counter() - clock, process_time() - busy
    keys = {system.key(conversation): sizes["turns"] for conversation in conversations}
    await system.close()
    await check(make, file, keys)
    return {"turns": len(keys) * sizes["turns"], "wall": wall, "processor": processor}


async def syncs(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """Hold turns while strace counts: nothing is measured here."""
    system = make()
    await system.open(folder / "syncs.db")
    await say(system, await system.create(0), sizes["turns"])
    await system.close()
    return {"turns": sizes["turns"]}


async def reopen(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """The seconds until the conversation in the file that `long` left takes a message, and until its model is asked.

    Some systems read the history when they are opened, and some for the request, so only the second can be compared.
    `process` are the seconds since the process was started, at the moment `started`; then the file is opened again.
    """
    ready, asked = [], []
    since_start = time() - sizes["started"] - perf_counter()
    for _ in range(sizes["repeats"]):
        system = make()
        began = perf_counter()
        await system.open(folder / "long.db")
        conversation = await system.resume(sizes["key"])
        ready.append(perf_counter() - began)
        REQUESTS.begin()
        assert await system.turn(conversation) == REPLIED
        asked.append(REQUESTS.first - began)
        if len(asked) == 1:
            since_start += REQUESTS.first
        await system.close()
    again = slice(1 if len(ready) > 1 else 0, None)
    return {"process": since_start, "ready": statistics.median(ready[again]), "asked": statistics.median(asked[again])}


async def answer(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """The seconds from each answer to a question to the next request to the model, in a new conversation."""
    system = make()
    await system.open(folder / "answer.db")
    conversation = await system.create(0)
    seconds = [await system.answer(conversation) for _ in range(sizes["repeats"])]
    await system.close()
    return {"seconds": seconds}


async def steps(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """The processor seconds of each step when nothing is stored on a disk: a turn has four."""
    system = make()
    await system.open(None)
    await say(system, await system.create(0), 3)
    rounds = []
    for number in range(1, 1 + sizes["repeats"]):
        conversation = await system.create(number)
        busy = process_time()
        await say(system, conversation, sizes["turns"])
        rounds.append((process_time() - busy) / sizes["turns"] / 4)
    await system.close()
    return {"seconds": min(rounds)}


async def idle(make: type[System], folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """The bytes of Python that each conversation holds which rests between two messages, after `turns` of them."""
    system = make()
    await system.open(folder / "idle.db")
    tracemalloc.start()
    made: list[Any] = []

    async def add(count: int) -> int:
        for _ in range(count):
            made.append(await system.create(len(made)))
            await say(system, made[-1], sizes["turns"])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    before = await add(5)
    after = await add(sizes["conversations"])
    tracemalloc.stop()
    await system.close()
    return {"bytes": (after - before) / sizes["conversations"]}


async def warm(make: type[System], folder: Path) -> None:
    """Import and compile what the first turns need."""
    system = make()
    await system.open(folder / "warm.db")
    await say(system, await system.create(0), 3)
    await system.close()


async def say(system: System, conversation: Any, turns: int) -> None:
    """Hold so many turns, and check their replies."""
    for _ in range(turns):
        assert await system.turn(conversation) == REPLIED


async def check(make: type[System], file: Path, turns: dict[str, int]) -> None:
    """Open the file again, and count what is stored. Raises RuntimeError if it is not every message of every turn."""
    system = make()
    await system.open(file)
    for key, count in turns.items():
        found = await system.count(await system.resume(key))
        if found != count * MESSAGES:
            raise RuntimeError(f"{found} messages are stored of {count * MESSAGES}")
    await system.close()


def microseconds(seconds: float) -> int:
    """Return whole microseconds, which are short to write."""
    return round(seconds * 1e6)


def size_of(file: Path) -> int:
    """Return the bytes of the database, with what is beside it."""
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def journal(file: Path) -> dict[str, str]:
    """Return how the file is journalled, as SQLite says."""
    with closing(sqlite3.connect(file)) as connection:
        return {"journal": connection.execute("PRAGMA journal_mode").fetchone()[0]}


PARTS: dict[str, Part] = {part.__name__: part for part in (long, many, syncs, reopen, answer, steps, idle)}


def main(make: type[System]) -> None:
    """Measure the part that the command line names, and print it."""
    name, folder, sizes = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        place = Path(folder) if name in ("long", "reopen") else Path(own)
        try:
            measured = asyncio.run(PARTS[name](make, place, json.loads(sizes)))
        except NotOffered:
            measured = {"not offered": True}
    about = {"versions": {package: version(package) for package in make.packages}, "stores": make.stores}
    print(json.dumps({"about": about, "measured": measured}))
