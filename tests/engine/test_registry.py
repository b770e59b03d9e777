"""The open conversations of an engine: each is created once, however often it is asked for at the same time, and is
taken over although the first attempt goes wrong; channels are told when a turn has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Delivery, Engine
from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Log
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Opened, TurnEnded
from turnwise.testing import FunctionLlm, ScriptedLlm, failure, reply


class TakenIds:
    """A store in which another engine has just created the conversation that an engine is about to create."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, conversation_id: str, event: Opened, step: Any) -> Log:
        """Create the conversation, and say that its id is taken."""
        await self._store.create(conversation_id, event.replace(title="the one that exists"), step)
        raise StoreConflict(conversation_id)


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


class Pager:
    """A channel that keeps what it is told."""

    def __init__(self, name: str = "pager") -> None:
        self.name = name
        self.ended: list[tuple[str, int, str, int]] = []

    async def deliver(self, delivery: Delivery) -> None:
        """Take it."""

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Keep how the turn ended."""
        self.ended.append((conversation_id, ended.turn, ended.status, len(ended.deliveries)))


class BrokenPager(Pager):
    """A channel that fails at the end of each turn."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Fail."""
        raise self.error


async def test_the_conversation_that_has_the_id_is_returned(database: Path) -> None:
    """It is returned as it is, and goes on."""
    store = await SqliteStore.open(str(database))
    try:
        async with Engine.open(store=TakenIds(store), model=ScriptedLlm([reply("Hello.")])) as engine:  # type: ignore[arg-type]
            conversation = await engine.create(title="another one")
            turn = await conversation.send("Hi")

        assert (conversation.title, turn.reply) == ("the one that exists", "Hello.")
    finally:
        await store.close()


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


class TestTurnEnds:
    """`turn_ended` of a channel."""

    async def test_each_turn_is_told_once(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """J14: with its status and its deliveries, also a turn that failed. A channel that raises changes nothing, also
        if it asks for the result of work that it has cancelled, or would end the process."""
        pager = Pager()
        llm = ScriptedLlm([reply("a"), failure("authentication")])
        errors = [OSError("out of paper"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt()]
        channels = [*map(BrokenPager, errors), pager]
        async with asyncio.timeout(20), Engine.open(database, model=llm, channels=channels) as engine:
            conversation = await engine.create()
            told = [(await conversation.send(text)).status for text in ("one", "two")]

        assert told == ["completed", "failed"]
        assert pager.ended == [(conversation.id, 1, "completed", 1), (conversation.id, 2, "failed", 0)]
        assert caplog.text.count("A channel failed at the end of a turn.") == 2 * len(errors)

    async def test_turns_of_an_earlier_process_are_not_told(self, database: Path) -> None:
        """What it heard is all that it is told: a reopened database repeats nothing."""
        pager = Pager()
        async with Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[pager]) as engine:
            conversation = await engine.create()
            await conversation.send("one")
        async with Engine.open(database, model=ScriptedLlm([reply("b")]), channels=[pager]) as engine:
            await (await engine.get(conversation.id)).send("two")

        assert [turn for _, turn, _, _ in pager.ended] == [1, 2]
