"""Conversations wake up by their schedules where several processes share a database: one of them wakes each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

from turnwise import Engine
from turnwise.states import WakeUp
from turnwise.testing import FunctionLlm

INTERVAL = 2.0


def woken(request: Any) -> str:
    """The model's answer to any request."""
    return "I have looked."


@asynccontextmanager
async def engines(url: str, count: int, **options: Any) -> AsyncIterator[list[Engine]]:
    """So many processes over one database."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Engine.open(url, model=FunctionLlm(woken), **options)) for _ in range(count)
        ]


async def wake_ups_of(engine: Engine, conversation_id: str) -> list[WakeUp]:
    """The wake-ups in the log of a conversation, in order."""
    entries = await engine.store.entries(conversation_id)
    return [entry.event for entry in entries if isinstance(entry.event, WakeUp)]


async def have_woken(engine: Engine, names: list[str], times: int) -> None:
    """Wait until each of these conversations has woken up so many times."""
    async with asyncio.timeout(120):
        for name in names:
            while len(await wake_ups_of(engine, name)) < times:
                await asyncio.sleep(0.1)


class TestWorkers:
    """A moment of a schedule begins one turn, whichever process is there."""

    async def test_each_moment_comes_once(self, postgres_url: str) -> None:
        """While processes come and go. A wake-up comes when the one before it has said, so none is lost."""
        async with engines(postgres_url, 1, worker=False) as (web,):
            names = [(await web.create(every=INTERVAL, task="Look around.")).id for _ in range(5)]
            async with engines(postgres_url, 2) as workers:
                await have_woken(web, names, 2)
                async with engines(postgres_url, 1) as others:
                    await workers[0].close()
                    await have_woken(web, names, 4)
                    assert others[0].custody_counts.lost == 0
            for name in names:
                woken_up = await wake_ups_of(web, name)
                assert all(after.due == before.next_wake for before, after in pairwise(woken_up))
                assert all(each.at >= each.due for each in woken_up)
                assert len({each.due for each in woken_up}) == len(woken_up)
                assert (await (await web.get(name)).replay()).divergence is None

    async def test_what_was_due_while_no_worker_ran_comes_when_one_does(self, postgres_url: str) -> None:
        """A process that takes requests only wakes nobody."""
        async with engines(postgres_url, 1, worker=False) as (web,):
            conversation = await web.create(every=1.0, task="Look around.")
            await asyncio.sleep(2.5)
            assert await wake_ups_of(web, conversation.id) == []
            async with engines(postgres_url, 1):
                await have_woken(web, [conversation.id], 1)

    async def test_a_schedule_that_is_taken_away_wakes_nobody(self, postgres_url: str) -> None:
        """Whichever process takes it away."""
        async with engines(postgres_url, 2) as (worker, _), engines(postgres_url, 1, worker=False) as (web,):
            conversation = await worker.create(every=1.0, task="Look around.")
            await (await web.get(conversation.id)).set_schedule()
            woken_up = len(await wake_ups_of(web, conversation.id))
            await asyncio.sleep(3.0)
            assert len(await wake_ups_of(web, conversation.id)) == woken_up

    async def test_all_at_one_moment_are_taken_once_each(self, postgres_url: str) -> None:
        """However many processes look, each conversation is taken by one of them."""
        async with engines(postgres_url, 1, worker=False) as (web,):
            names = [(await web.create(every=3600, task="Look around.")).id for _ in range(40)]
            async with engines(postgres_url, 3) as workers:
                for name in names:
                    await (await web.get(name)).set_schedule(every=4.0, task="Look around.")
                await have_woken(web, names, 1)
                counts = [each.custody_counts for each in workers]
            assert sum(each.taken for each in counts) < 3 * len(names)
            assert sum(each.lost for each in counts) == 0
