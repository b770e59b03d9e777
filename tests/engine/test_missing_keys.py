"""Models that this engine cannot ask, because their key is missing or they are not known."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, ModelSpec, Policy, Profile, presets
from turnwise.engine.models import CHECK_AGAIN
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm

from ..support.agents.teams import MAIL_TOOLS, tells_user
from ..support.engine_scenarios import Gate, until
from ..support.servers.openai_server import OpenAiServer, says

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


async def test_a_turn_that_was_left_waits_for_the_model_of_its_profile(database: Path) -> None:
    """Although the model that the conversation asks without a profile is there."""
    gate = Gate()

    async def answer(_: object) -> str:
        await gate()
        return "Yes."

    others = FunctionLlm(lambda _: "careful", name="other")
    profiles = [Profile(name="careful", model=ModelSpec(name=MODEL)), Profile(name="quick")]
    engine = await Engine.open(database, model=others, models=[FunctionLlm(answer, name=MODEL)], profiles=profiles)
    conversation = await engine.create()
    waiting = asyncio.ensure_future(conversation.send("Hello"))
    await gate.arrived.wait()
    await engine.close()
    await asyncio.gather(waiting, return_exceptions=True)

    async with Engine.open(database, model=others, models=[MODEL]) as engine:
        assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
        assert (await engine.get(conversation.id)).state.type == "llm_requesting"
    gate.opened.set()
    async with Engine.open(database, model=others, models=[FunctionLlm(answer, name=MODEL)]) as engine:
        turn = await (await engine.get(conversation.id)).wait()

    assert (turn.status, turn.reply) == ("completed", "Yes.")


def told(caplog: pytest.LogCaptureFixture) -> int:
    """How often the log says that the key is missing."""
    return len([record for record in caplog.records if NO_KEY in record.getMessage()])


class TestATurnThatNobodySentAMessageFor:
    """It passes no door at which a sender could be told, so it waits where its model would be asked."""

    async def left_by_schedule(self, database: Path, clock: ManualClock, **options: Any) -> str:
        """Have a schedule begin a turn in an engine without the key, and return the id of its conversation."""
        async with Engine.open(database, model=MODEL, clock=clock, **options) as engine:
            scout = await engine.create(role="background", every=60, task="Look around.")
            await clock.advance(60)
            await until(lambda: bool(engine.server_faults))

            assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
            assert scout.state.type != "failed"
        return scout.id

    async def test_of_a_schedule(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """However many engines without the key are opened: the engine that has it does all of the turn."""
        clock = ManualClock()
        options: dict[str, Any] = {"policy": Policy(recall=True), "clock": clock}
        scout = await self.left_by_schedule(database, **options)
        for _ in range(3):
            async with Engine.open(database, model=MODEL, **options) as engine:
                assert (await engine.get(scout)).state.type != "failed"

        async with Engine.open(database, model=FunctionLlm(lambda _: "Seen.", name=MODEL), **options) as engine:
            turn = await (await engine.get(scout)).wait()

        assert (turn.status, turn.final_content) == ("completed", "Seen.")
        assert told(caplog) == 4

    async def test_of_a_message_that_is_to_be_passed_on(self, database: Path) -> None:
        """The agent that writes it has a key and goes on; the one that is to pass it on chose a model without one."""
        writes = ScriptedLlm([tells_user("Table 4 is free."), "Sent."], name="writer")
        async with Engine.open(database, model=writes, models=[MODEL], tools=MAIL_TOOLS) as engine:
            front = await engine.create(model=MODEL, policy=presets.foreground())
            back = await engine.create(model="writer", role="background", works_for=front)
            turn = await back.send("Find a table.")
            await until(lambda: bool(engine.server_faults))

            assert (turn.final_content, front.state.type) == ("Sent.", "llm_requesting")
        answers = FunctionLlm(lambda _: "Table 4 is yours.", name=MODEL)
        async with Engine.open(database, model=answers, models=[writes], tools=MAIL_TOOLS) as engine:
            assert (await (await engine.get(front.id)).wait()).reply == "Table 4 is yours."

    @pytest.mark.parametrize("is_left", [False, True], ids=["begun here", "left by another process"])
    async def test_goes_on_when_the_key_is_set(
        self, database: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
    ) -> None:
        """In the same process, without another engine."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock) if is_left else ""
        async with OpenAiServer([says("Seen.")]) as server, Engine.open(database, model=MODEL, clock=clock) as engine:
            if not is_left:
                scout = (await engine.create(role="background", every=60, task="Look around.")).id
                await clock.advance(60)
            await until(lambda: bool(engine.server_faults))
            monkeypatch.setenv("OPENAI_API_KEY", "test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            await clock.advance(CHECK_AGAIN)
            turn = await (await engine.get(scout)).wait()

            assert (turn.status, turn.final_content, engine.server_faults) == ("completed", "Seen.", ())
            assert len(server.requests) == 1

    async def test_can_be_cancelled(self, database: Path) -> None:
        """Where it was begun, and where it was left."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock)
        async with Engine.open(database, model=MODEL, clock=clock) as engine:
            conversation = await engine.get(scout)
            await conversation.cancel()
            await until(lambda: conversation.state.type == "idle")
            await clock.advance(60)
            await until(lambda: conversation.state.type != "idle")
            await conversation.cancel()
            await until(lambda: conversation.state.type == "idle")

    async def test_is_forgotten_with_its_conversation(self, database: Path) -> None:
        """Nothing waits for it afterwards."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock)
        async with Engine.open(database, model=MODEL, clock=clock) as engine:
            await engine.delete(scout)
            await until(lambda: not engine.server_faults)
