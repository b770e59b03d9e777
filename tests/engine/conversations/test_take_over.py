"""Taking a conversation over when its first attempt goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine
from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.opening import open_store
from turnwise.testing import FunctionLlm, reply

PATIENCE = 60


class Unreachable:
    """A channel that delivers nothing, so that its deliveries are taken over, too."""

    name = "unreachable"

    async def deliver(self, delivery: Any) -> None:
        """Fail."""
        raise ConnectionError


class Store:
    """A store that is busy while the engine opens. Then the first page of entries that is read is `held`, or fails."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_busy = True
        self.fails = False
        self.held: asyncio.Event | None = None
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, conversation_id: str) -> Any:
        """Load it, unless the store is busy."""
        if self.is_busy:
            raise StorageFailed("The store is busy.")
        return await self._store.load(conversation_id)

    async def entries(self, *arguments: Any, **options: Any) -> Any:
        """Read them, once the test says so."""
        if self.fails:
            self.fails = False
            raise KeyError("a fault of this store")
        if self.held is not None:
            self.held.set()
            await self.go_on.wait()
        return await self._store.entries(*arguments, **options)


@asynccontextmanager
async def interrupted(database: Path) -> AsyncIterator[tuple[Engine, Store]]:
    """An engine that could not take over a turn that waits for its model, behind a text that was not delivered."""
    asked = asyncio.Event()

    async def says(request: Any) -> Any:
        if sum(message["role"] == "user" for message in request.messages) > 1:
            asked.set()
            await asyncio.Event().wait()
        return reply("Said.")

    async with Engine.open(database, model=FunctionLlm(says), channels=[Unreachable()]) as engine:
        conversation = await engine.create(conversation_id="c")
        await conversation.send("One.")
        await conversation.send("Two.", wait=False)
        await asked.wait()
    store = Store(await open_store(database))
    model = FunctionLlm(lambda _: reply("Finished."))
    async with Engine.open(store=store, model=model, channels=[Unreachable()]) as again:
        store.is_busy = False
        yield again, store
    await store.close()


async def reply_of(conversation: Conversation) -> str | None:
    """What the turn ends with."""
    return (await asyncio.wait_for(conversation.wait(), PATIENCE)).reply


async def test_it_goes_on_though_the_caller_is_cancelled(database: Path) -> None:
    """P27: whoever asks first may give up; nobody else would take the conversation over."""
    async with interrupted(database) as (engine, store):
        store.held = asyncio.Event()
        asking = asyncio.ensure_future(engine.get("c"))
        await asyncio.wait_for(store.held.wait(), PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        store.go_on.set()

        assert await reply_of(await engine.get("c")) == "Finished."


async def test_it_is_tried_again_when_it_has_failed(database: Path) -> None:
    """P27: whoever asks next takes the conversation over, whatever the store has raised."""
    async with interrupted(database) as (engine, store):
        store.fails = True
        with pytest.raises(KeyError):
            await engine.get("c")

        assert await reply_of(await engine.get("c")) == "Finished."


async def test_an_engine_closes_although_a_store_does_not_answer(database: Path) -> None:
    """What was to be taken over is left to the next engine."""
    async with interrupted(database) as (engine, store):
        store.held = asyncio.Event()
        asking = asyncio.ensure_future(engine.get("c"))
        await asyncio.wait_for(store.held.wait(), PATIENCE)

        await asyncio.wait_for(engine.close(), PATIENCE)

        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], BaseException)
