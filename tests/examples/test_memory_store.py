"""The store in memory is an example of a store that somebody else has written: with public names, and complete."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnwise import Delivery, Engine, persistence
from turnwise.persistence import Store
from turnwise.testing import RecordingChannel, ScriptedLlm, reply
from turnwise.testing.store_contract import StoreContract

from ..support.scenarios.examples import EXAMPLES, example

MemoryStore = example("memory_store").MemoryStore


@pytest.mark.slow
class TestTheStore(StoreContract):
    """It does what every store must do."""

    lasting = False

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Store]:
        """It needs no place."""
        store = MemoryStore()
        try:
            yield store
        finally:
            await store.close()


def refuse(delivery: Delivery) -> None:
    """A screen that takes nothing."""
    raise ConnectionError("the screen is dark")


class TestAnEngine:
    """An engine runs over the store, as over any other."""

    async def test_goes_on_where_another_engine_left_off(self) -> None:
        """The store outlives the engines that were opened over it."""
        store = MemoryStore()
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create(system="You book tables.")
            await conversation.send("Hi", message_id="m1")

        async with Engine.open(store=store, model=ScriptedLlm([reply("Again.")])) as engine:
            again = await engine.get(conversation.id)
            assert (await again.send("Hi", message_id="m1")).reply == "Hello."
            assert (await again.send("And now?")).reply == "Again."
            assert [message.text for message in await again.transcript()] == ["Hi", "Hello.", "And now?", "Again."]
            assert (await again.replay()).divergence is None

    async def test_takes_over_what_another_engine_did_not_finish(self) -> None:
        """A turn under way goes on, and what was not delivered is delivered."""
        store = MemoryStore()
        dark = RecordingChannel(refuse, name="screen")
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")]), channels=[dark]) as engine:
            await (await engine.create()).send("Hi")
        screen = RecordingChannel(name="screen")

        async with Engine.open(store=store, model=ScriptedLlm([]), channels=[screen]) as engine:
            while await engine.store.outbox(await engine.store.ids()):
                await asyncio.sleep(0.01)

        assert (len(dark.failed) >= 1, screen.texts) == (True, ["Hello."])

    async def test_forks_and_deletes(self) -> None:
        """A copy goes on by itself."""
        async with Engine.open(store=MemoryStore(), model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            copy = await conversation.fork()
            assert (await copy.send("And?")).reply == "Two."
            await engine.delete(conversation.id)

            assert [summary.id for summary in await engine.list()] == [copy.id]


def test_it_uses_public_names_only() -> None:
    """What it imports is exported by `turnwise.persistence` and `turnwise.states`."""
    tree = ast.parse((EXAMPLES / "memory_store.py").read_text(encoding="utf-8"))
    imported = {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("turnwise")
        for name in node.names
    }

    public = {"turnwise", "turnwise.persistence", "turnwise.states", "turnwise.states.dialogue", "turnwise.testing"}
    assert {module for module, _ in imported} <= public
    assert {name for module, name in imported if module == "turnwise.persistence"} <= set(persistence.__all__)
