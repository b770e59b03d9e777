"""Models that load something before their first request, as those of litellm do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Conversation,
    Engine,
    LiteLlm,
    ModelAnswer,
    ModelRequest,
    Policy,
    Profile,
    Settings,
    StateChangeUpdate,
    Token,
)
from turnwise.testing import FunctionLlm, reply

from ..support.engine_scenarios import Gate
from ..support.servers.openai_server import OpenAiServer, says

PROFILES = [Profile(name="clerk", prompt="Be exact."), Profile(name="chef", prompt="Cook.")]
HURRIED = Settings(llm_profile_select_timeout_sec=0.001, llm_tools_timeout_sec=0.001)
"""Far less than a model in these tests takes to load, and enough for an answer that waits for nothing."""

NO_TIME = 0.05
"""Seconds by which these deadlines are long over."""


class Loading(FunctionLlm):
    """A model that can take requests once its gate is open, and chooses the chef."""

    def __init__(self) -> None:
        super().__init__(self._choose, name="slow")
        self.gate = Gate()

    async def ready(self) -> None:
        """Wait for the gate."""
        await self.gate()

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer once the gate is open."""
        await self.gate()
        return await super().complete(request, show)

    def _choose(self, request: ModelRequest) -> Any:
        answers = {"route": '{"profile": "chef"}', "enrich": '{"keywords": ["sushi"]}'}
        return reply(answers.get(request.purpose, "Yes."))


class GatedLiteLlm(LiteLlm):
    """A model of litellm that is imported once the gate is open."""

    gate: Gate

    async def ready(self) -> None:
        """Wait for the gate, and for litellm."""
        await self.gate()
        await super().ready()


def left_out(updates: list[Any]) -> list[tuple[str, ...]]:
    """What turns went on without, by the updates that say so."""
    return [one.state.left_out for one in updates if isinstance(one, StateChangeUpdate) and one.state.left_out]


async def updates_of_turn(conversation: Conversation, text: str) -> list[Any]:
    """Send a message, and return the updates of its turn."""
    return [update async for update in conversation.stream(text)]


class TestDeadlines:
    """They begin when the model is ready."""

    async def test_a_first_turn_keeps_its_profile_and_its_memory(self, database: Path) -> None:
        """However long the model takes to load: the choice of a profile and the search for older conversations have
        their whole time afterwards."""
        quick = FunctionLlm(lambda _: "Sushi on Friday.", name="slow")
        async with Engine.open(database, model=quick) as engine:
            await (await engine.create(owner="anna")).send("Where is the sushi?")
        model = Loading()
        async with Engine.open(database, model=model, profiles=PROFILES, settings=HURRIED) as engine:
            conversation = await engine.create(owner="anna", policy=Policy(route=True, recall=True))
            sending = asyncio.ensure_future(updates_of_turn(conversation, "Sushi again?"))
            await model.gate.arrived.wait()
            await asyncio.sleep(NO_TIME)
            model.gate.opened.set()
            updates = await sending
            request = model.requests[-1]

        assert left_out(updates) == []
        assert updates[-1].profile == "chef"
        assert [one.purpose for one in model.requests] == ["route", "enrich", "converse"]
        assert "Sushi on Friday." in request.messages[0]["content"]

    async def test_of_litellm_over_a_socket(self) -> None:
        """The import of litellm is not counted either."""
        async with OpenAiServer([says('{"profile": "chef"}'), says("Here you are.")]) as server:
            model = GatedLiteLlm("openai/test", api_base=server.url, api_key="test")
            model.gate = Gate()
            settings = Settings(llm_profile_select_timeout_sec=10)
            async with Engine.open("sqlite://", model=model, profiles=PROFILES, settings=settings) as engine:
                conversation = await engine.create(policy=Policy(route=True))
                sending = asyncio.ensure_future(conversation.send("Hello"))
                await model.gate.arrived.wait()
                assert server.requests == []
                model.gate.opened.set()
                turn = await sending

        assert (turn.reply, turn.profile) == ("Here you are.", "chef")


class TestOpening:
    """An engine begins to load its models when it opens, and does not wait for them."""

    async def test_it_does_not_wait(self) -> None:
        """Neither for the model that is asked first nor for others; a model that never loads ends with the engine."""
        first, other = Loading(), Loading()
        other.name = "other"
        async with Engine.open("sqlite://", model=first, models=[other]) as engine:
            await first.gate.arrived.wait()
            assert engine.is_open
            first.gate.opened.set()
            await other.gate.arrived.wait()

    async def test_one_that_cannot_load_is_told_to_who_asks_it(self, caplog: pytest.LogCaptureFixture) -> None:
        """The engine opens all the same, and the turn fails with the reason."""

        class Broken(Loading):
            async def ready(self) -> None:
                raise ImportError("no such library")

        caplog.set_level(logging.WARNING)
        async with Engine.open("sqlite://", model=Broken()) as engine:
            turn = await (await engine.create()).send("Hello")

        assert turn.status == "failed"
        assert "A model could not be loaded ahead." in caplog.text
