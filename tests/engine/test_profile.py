"""Which profile a turn had, and which one the newest turn of a conversation has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from turnwise import Engine, ModelRequest, Policy, Profile, TurnEndedUpdate, WaitsForAnswer, presets
from turnwise.testing import FunctionLlm, call, reply

PROFILES = (Profile(name="chef"), Profile(name="clerk"))


class Router:
    """A model that chooses the profile that the message names, and then replies, or asks where the message asks."""

    def __init__(self) -> None:
        self.holds = asyncio.Event()
        self.holds.set()

    async def __call__(self, request: ModelRequest) -> Any:
        """Answer a request."""
        text = str([message["content"] for message in request.messages if message["role"] == "user"][-1])
        if request.purpose == "route":
            return reply(text.split()[0])
        await self.holds.wait()
        asks = text.endswith("?") and request.messages[-1]["role"] == "user"
        questions = [{"question": "When?", "header": "When", "options": [{"label": "6"}, {"label": "7"}]}]
        return call("ask_user_question", questions=questions) if asks else reply("Done.")


def opened(database: Any, router: Router, **options: Any) -> Engine:
    """Open an engine that routes."""
    options = {"profiles": PROFILES, "policy": Policy(route=True), "tools": ["ask_user_question"], **options}
    return Engine.open(database, model=FunctionLlm(router, name="it"), **options)


async def test_every_turn_names_its_profile(database: Path) -> None:
    """`Turn.profile` in each kind of turn, in `turns()` and in the update of its end; `conversation.profile` is that of
    the newest turn."""
    router = Router()
    async with opened(database, router) as engine:
        conversation = await engine.create()
        before = conversation.profile
        ended = await conversation.send("clerk it is")
        router.holds.clear()
        running = await conversation.send("chef it is", wait=False)
        updates = conversation.updates(after="0.0")
        while conversation.state.type != "llm_requesting":
            await anext(updates)
        under_way = conversation.profile
        router.holds.set()
        await conversation.wait()
        waiting = await conversation.send("clerk now?")
        rested = conversation.profile
        await conversation.cancel()
        turns = await conversation.turns()

    assert (before, ended.profile, running.status, under_way) == ("", "clerk", "running", "chef")
    assert isinstance(waiting, WaitsForAnswer)
    assert (waiting.profile, rested) == ("clerk", "clerk")
    assert [turn.profile for turn in turns] == ["clerk", "chef", "clerk"]


async def test_the_end_of_a_turn_says_it_in_the_updates() -> None:
    """Clients show who answered."""
    async with opened("sqlite://", Router()) as engine:
        conversation = await engine.create()
        seen = [update async for update in conversation.stream("clerk please")]

    assert [update.profile for update in seen if isinstance(update, TurnEndedUpdate)] == ["clerk"]
    assert seen[-1].data["profile"] == "clerk"


async def test_it_is_known_after_a_restart(database: Path) -> None:
    """Also where other steps followed the turn."""
    async with opened(database, Router()) as engine:
        conversation = await engine.create()
        empty = await engine.create()
        await conversation.send("chef")
        await conversation.send("clerk")
        for number in range(30):
            await conversation.set_title(f"Title {number}")

    async with opened(database, Router()) as engine:
        again = await engine.get(conversation.id)

        assert again.profile == "clerk"
        assert (await engine.get(empty.id)).profile == ""
        await again.send("chef")
        assert again.profile == "chef"


async def test_without_profiles_it_is_empty(database: Path) -> None:
    """In turns and in the conversation."""
    async with opened(database, Router(), profiles=(), policy=presets.assistant()) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert (turn.profile, conversation.profile) == ("", "")


def test_the_blocking_conversation_has_it() -> None:
    """Like its other properties."""
    model = FunctionLlm(lambda request: reply("Done."), name="it")
    with Engine.open_blocking("sqlite://", model=model, profiles=PROFILES) as engine:
        conversation = engine.create()
        turn = conversation.send("Hi")

        assert (turn.profile, conversation.profile) == ("chef", "chef")
