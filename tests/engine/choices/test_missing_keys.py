"""Models that this engine cannot ask, because their key is missing or they are not known."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from turnwise import ConfigurationError, Engine
from turnwise.testing import FunctionLlm

from ...support.engine_scenarios import Gate

MODEL = "openai/gpt-4.1-mini"
NO_KEY = f"There is no key for the model '{MODEL}': set OPENAI_API_KEY."


@pytest.fixture(autouse=True)
def _without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


async def test_a_message_is_refused_and_nothing_is_stored(database: Path) -> None:
    """The sender gets the sentence; the conversation stays as it was, and takes the message once there is a key."""
    async with Engine.open(database, model=MODEL) as engine:
        conversation = await engine.create()
        with pytest.raises(ConfigurationError) as caught:
            await conversation.send("Hello", message_id="m-1")
        state, seq = conversation.state.type, conversation.state.book.seq

    assert (caught.value.sentence, state, seq) == (NO_KEY, "idle", 1)
    async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
        assert (await (await engine.get(conversation.id)).send("Hello", message_id="m-1")).reply == "Yes."


async def test_the_model_that_is_asked_first_counts(database: Path) -> None:
    """A fallback without a key does not matter, and one with a key does not help: nothing falls back for this."""
    other = FunctionLlm(lambda _: "Yes.")
    async with Engine.open(database, model=other, fallback_models=[MODEL]) as engine:
        conversation = await engine.create()
        assert (await conversation.send("Hello")).reply == "Yes."
    async with Engine.open(database, model=MODEL, fallback_models=[other]) as engine:
        with pytest.raises(ConfigurationError):
            await (await engine.get(conversation.id)).send("And now?")


async def test_a_turn_that_was_left_waits_for_its_model(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often engines without the key are opened, it neither fails nor counts as tried. They say once that it
    waits, and the engine with the model ends it."""
    gate = Gate()

    async def answer(_: object) -> str:
        await gate()
        return "Yes."

    engine = await Engine.open(database, model=FunctionLlm(answer, name=MODEL))
    conversation = await engine.create()
    waiting = asyncio.ensure_future(conversation.send("Hello"))
    await gate.arrived.wait()
    before = await conversation.events()
    await engine.close()
    await asyncio.gather(waiting, return_exceptions=True)
    caplog.set_level(logging.WARNING)

    for _ in range(4):
        async with Engine.open(database, model=MODEL) as engine:
            found = await engine.get(conversation.id)
            assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
            assert await found.events() == before
    gate.opened.set()
    async with Engine.open(database, model=FunctionLlm(answer, name=MODEL)) as engine:
        turn = await (await engine.get(conversation.id)).wait()

    assert (turn.status, turn.reply) == ("completed", "Yes.")
    assert len([record for record in caplog.records if NO_KEY in record.getMessage()]) == 4
