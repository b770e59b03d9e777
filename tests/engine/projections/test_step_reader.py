"""The steps of a log are read a page at a time, and none twice for somebody who goes forward."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from turnwise import Engine, StoreError
from turnwise.engine.inspection import StepReader
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.states import LogEntry
from turnwise.testing import FunctionLlm, reply


class Log:
    """Entries as a store reads them, and the number of those that were read so far."""

    def __init__(self, entries: Sequence[LogEntry]) -> None:
        self.entries = entries
        self.read = 0
        self.error: StoreError | None = None

    async def __call__(self, after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
        """Read entries."""
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        found = [entry for entry in self.entries if after < entry.seq <= (up_to or len(self.entries))]
        self.read += len(found)
        return found


async def log_of(turns: int) -> Log:
    """Return the log of a conversation that had so many turns, of two steps each."""
    async with Engine.open("sqlite://", model=FunctionLlm(lambda _: reply("Hello."))) as engine:
        conversation = await engine.create(system="Be brief.")
        for turn in range(turns):
            await conversation.send(f"Message {turn}")
        return Log(await conversation.events())


async def test_each_new_step_costs_itself() -> None:
    """Whoever follows a conversation reads the newest step after each commit."""
    log = await log_of(20)
    whole = await StepReader(log).read(0, None)
    reader, entries = StepReader(log), log.entries

    log.read = 0
    for seq in range(1, len(entries) + 1):
        log.entries = entries[:seq]
        assert await reader.read(seq - 1, None) == whole[seq - 1 : seq]

    assert log.read == len(entries)


async def test_pages_are_read_beside_somebody_who_follows() -> None:
    """Each of the two goes on from where it was."""
    log = await log_of(20)
    reader = StepReader(log)
    whole = await reader.read(0, None)
    log.read = 0

    for after in range(0, 40, 10):
        assert await reader.read(after, 10) == whole[after : after + 10]
        assert await reader.read(41, None) == ()

    assert log.read == 40


async def test_who_goes_back_begins_again() -> None:
    """States are not stored, so there is no other way to an earlier step."""
    log = await log_of(5)
    reader = StepReader(log)
    whole = await reader.read(0, None)

    assert await reader.read(3, 2) == whole[3:5]
    assert await reader.read(1, 1) == whole[1:2]
    assert await reader.read(0, None) == whole


async def test_readers_at_the_same_time() -> None:
    """They do not disturb each other, whoever is cancelled meanwhile."""
    log = await log_of(10)
    reader = StepReader(log)
    whole = await reader.read(0, 5)
    asking = [asyncio.ensure_future(reader.read(5, 3)) for _ in range(6)]
    await asyncio.sleep(0)
    asking[0].cancel()

    pages = await asyncio.gather(*asking[1:])

    assert len(set(map(str, pages))) == 1
    assert [step.seq for step in whole + pages[0]] == list(range(1, 9))


async def test_a_store_that_fails_for_a_moment() -> None:
    """The next attempt goes on from the place that was kept."""
    log = await log_of(10)
    reader = StepReader(log)
    await reader.read(0, 10)
    log.error = StorageFailed("The disk is away.")
    with pytest.raises(StorageFailed):
        await reader.read(10, 5)
    log.error, log.read = None, 0

    assert [step.seq for step in await reader.read(10, 5)] == [11, 12, 13, 14, 15]
    assert log.read == 5


async def test_a_step_that_comes_out_differently() -> None:
    """It is reported at each attempt, by its number; the steps before it can be read."""
    log = await log_of(3)
    entries = list(log.entries)
    entries[4] = LogEntry(5, entries[4].event, entries[4].effects[:-1], entries[4].ended, entries[4].turn)
    log.entries = entries
    reader = StepReader(log)

    for _ in range(2):
        with pytest.raises(Damaged) as damaged:
            await reader.read(2, None)
        assert damaged.value.seq == 5
    assert [step.seq for step in await reader.read(2, 2)] == [3, 4]
