"""Two engines over one PostgreSQL database: what is stored reaches whoever watches in the other, whatever becomes of
the notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psycopg
import pytest

from turnwise import Conversation, Engine
from turnwise.engine.settings import Settings
from turnwise.engine.updates import Update
from turnwise.persistence.postgres.notices import channel_of
from turnwise.testing import FunctionLlm, reply

from ...support.engine_scenarios import Watcher, until

pytestmark = pytest.mark.slow

TURNS = 12

STORM = """
SELECT count(pg_notify(%s, json_build_array(
    'elsewhere',
    json_build_array('stored', 'c' || n, m),
    json_build_array('shown', 'c' || n, 1, 'token', json_build_object('text', 'x', 'kind', 'text'), 0)
)::text))
FROM generate_series(1, 2000) AS n, generate_series(1, 10) AS m
"""
"""What another process would tell that drives 2,000 conversations."""

FEW = Settings(database_connections=4)


@asynccontextmanager
async def worker_and_web(url: str, **options: Any) -> AsyncIterator[tuple[Engine, Engine]]:
    """An engine that performs, and one that takes requests and shows."""
    model = FunctionLlm(lambda _: reply("Here."))
    async with (
        Engine.open(url, model=model, settings=FEW) as worker,
        Engine.open(url, model=model, worker=False, settings=Settings(database_connections=4, **options)) as web,
    ):
        yield worker, web


async def execute(url: str, statement: str, *parameters: Any) -> None:
    """Execute a statement over a connection of one's own."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement, parameters)


async def as_stored(conversation: Conversation, after: str) -> list[str]:
    """The ids of all updates after this one, as the log has them."""
    ids: list[str] = []
    async with aclosing(conversation.updates(after)) as updates:
        async for update in updates:
            if update.id is not None:
                ids.append(update.id)
            if update.type == "turn_ended" and update.turn == TURNS:
                return ids
    return ids


def stored_ids(updates: list[Update]) -> list[str]:
    """The ids of the stored updates."""
    return [update.id for update in updates if update.id is not None]


async def test_a_listener_whose_connection_is_broken_again_and_again_misses_nothing(postgres_url: str) -> None:
    """As by an administrator, or a network: each update is shown once, in order."""
    ended = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'turnwise notices' AND datname = current_database()"
    )
    async with worker_and_web(postgres_url) as (worker, web):
        there = await worker.create()
        here = await web.get(there.id)
        watcher = Watcher(here)
        first = (await watcher.until("snapshot")).id
        for number in range(TURNS):
            if number % 3 == 0:
                await execute(postgres_url, ended)
            await there.send("Hi.")
        await watcher.until("turn_ended", TURNS)
        await watcher.stop()

        assert first is not None
        expected = await as_stored(there, first)
        assert stored_ids(watcher.updates)[1 : len(expected) + 1] == expected


async def test_a_storm_of_notices_does_not_starve_an_engine(postgres_url: str) -> None:
    """Thousands of conversations move elsewhere, again and again, of which none is in memory here. A turn that is
    watched here goes on meanwhile, and none of them is read."""
    async with worker_and_web(postgres_url) as (worker, web):
        there = await worker.create()
        here = await web.get(there.id)
        watcher = Watcher(here)
        await watcher.until("snapshot")
        in_memory = web.in_memory
        storm = asyncio.ensure_future(execute(postgres_url, STORM, channel_of(None)))
        for _ in range(TURNS):
            await here.send("Hi.")
        await storm
        await watcher.until("turn_ended", TURNS)
        await watcher.stop()

        assert web.in_memory == in_memory


async def test_a_slow_watcher_holds_nothing_up_and_misses_nothing(postgres_url: str) -> None:
    """It reads from the log what is not kept any more."""
    async with worker_and_web(postgres_url, kept_updates=3) as (worker, web):
        there = await worker.create()
        here = await web.get(there.id)
        async with aclosing(here.updates()) as updates:
            first = (await anext(updates)).id
            for _ in range(TURNS):
                await there.send("Hi.")
            await until(lambda: here.state == there.state)
            shown: list[str] = []
            async for update in updates:
                if update.id is not None:
                    shown.append(update.id)
                if update.type == "turn_ended" and update.turn == TURNS:
                    break

        assert first is not None
        assert shown == await as_stored(there, first)
