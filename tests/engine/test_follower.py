"""Waiting for a turn that another engine over the same store drives, while the store has troubles of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from turnwise import Conversation, Engine, EngineClosed, StoreError, Turn
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Log
from turnwise.testing import FunctionLlm, ManualClock, reply

from ..support.engine_scenarios import Gate, answers_after
from ..support.planted.stores import WrappedLog, WrappedStore


class Troubled(WrappedLog):
    """A log that raises these errors, one for each look, once it has been read without trouble so many times."""

    def __init__(self, log: Log, fine: int, errors: list[Exception]) -> None:
        super().__init__(log)
        self.fine = fine
        self.errors = errors

    async def catch_up(self) -> Any:
        """Return the steps that others have stored, or fail."""
        self.fine -= 1
        if self.fine < 0 and self.errors:
            raise self.errors.pop(0)
        return await super().catch_up()


class DrivenElsewhere:
    """A turn that one engine drives, and a caller that waits for it in another."""

    def __init__(self, engine: Engine, driving: Conversation, gate: Gate, clock: ManualClock) -> None:
        self.engine = engine
        self.driving = driving
        self.gate = gate
        self.clock = clock

    async def wait(self) -> asyncio.Task[Turn]:
        """Begin to wait in the other engine, and return once it looks at the store."""
        waiting = asyncio.ensure_future((await self.engine.get(self.driving.id)).wait())
        await asyncio.sleep(0.02)
        await self.clock.until_asleep()
        return waiting

    async def look(self, times: int = 1) -> None:
        """Let it look at the store so many times."""
        for _ in range(times):
            await self.clock.advance(0.5)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def driven_elsewhere(*errors: Exception) -> AsyncIterator[DrivenElsewhere]:
    """Return a turn under way in one engine, and another engine whose store fails so after the first look."""
    gate, clock = Gate(), ManualClock()
    store = await open_store("sqlite://")
    wrap = partial(Troubled, fine=1, errors=list(errors))
    slow, quick = FunctionLlm(answers_after(gate, "At last.")), FunctionLlm(lambda _: reply("Here."))
    async with (
        Engine.open(store=store, model=slow) as one,
        Engine.open(store=WrappedStore(store, wrap), model=quick, clock=clock) as other,
    ):
        driving = await one.create()
        await driving.send("Hello", wait=False)
        await gate.arrived.wait()
        yield DrivenElsewhere(other, driving, gate, clock)
    await store.close()


async def test_a_store_that_is_busy_is_looked_at_again() -> None:
    """The waiting goes on."""
    async with driven_elsewhere(StorageFailed("busy"), StorageFailed("busy")) as driven:
        waiting = await driven.wait()
        driven.gate.opened.set()
        turn = await driven.driving.wait()
        await driven.look(2)
        assert not waiting.done()
        await driven.look()

        assert await waiting == turn


async def test_a_damaged_log_ends_the_waiting() -> None:
    """With the error; nobody waits for ever."""
    async with driven_elsewhere(Damaged(3, "Step 3 is not what was stored.")) as driven:
        waiting = await driven.wait()
        await driven.look()

        with pytest.raises(StoreError):
            await waiting
        driven.gate.opened.set()


async def test_an_engine_that_closes_looks_no_longer() -> None:
    """Its caller gets `EngineClosed`, and no task remains."""
    async with driven_elsewhere() as driven:
        waiting = await driven.wait()
        await driven.engine.close()

        with pytest.raises(EngineClosed):
            await waiting
        await asyncio.sleep(0.01)
        assert driven.clock.sleepers == ()
        driven.gate.opened.set()


async def test_a_caller_that_goes_away_ends_the_looking() -> None:
    """The last one does; another caller still gets the turn."""
    async with driven_elsewhere() as driven:
        first, second = await driven.wait(), await driven.wait()
        first.cancel()
        await asyncio.wait([first])
        assert len(driven.clock.sleepers) == 1
        second.cancel()
        await asyncio.wait([second])
        await asyncio.sleep(0.01)
        assert driven.clock.sleepers == ()

        third = await driven.wait()
        driven.gate.opened.set()
        turn = await driven.driving.wait()
        await driven.look()

        assert await third == turn
