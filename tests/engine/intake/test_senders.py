"""The tools of a turn run in the context variables of whoever sent the message that began it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, Turn, presets, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.testing import FunctionLlm, call, reply

USER: ContextVar[str] = ContextVar("user", default="nobody")


class Office:
    """An engine with a tool that notes for whom it runs, and waits there until it is let go on."""

    def __init__(self, database: Path) -> None:
        self.ran_for: list[str] = []
        self.goes_on = asyncio.Event()
        self.began = asyncio.Event()

        @tool(crash="pure")
        async def note() -> str:
            """Note."""
            self.ran_for.append(USER.get())
            self.began.set()
            await self.goes_on.wait()
            return "noted"

        self.engine = Engine.open(database, model=FunctionLlm(note_twice), tools=[note])


def note_twice(request: ModelRequest) -> ModelAnswer:
    """Answer each turn after two calls."""
    results = [*takewhile(lambda message: message["role"] != "user", reversed(request.messages))]
    return reply("Done") if len(results) >= 4 else call("note")


def send_as(user: str, conversation: Any, text: str, **options: Any) -> asyncio.Task[Turn]:
    """Send a message in a task whose context names this user."""
    context = copy_context()
    context.run(USER.set, user)
    return asyncio.get_running_loop().create_task(conversation.send(text, **options), context=context)


@pytest.mark.parametrize("fresh_handle", [False, True])
async def test_a_queued_message_brings_those_of_its_own_sender(tmp_path: Path, fresh_handle: bool) -> None:
    """Not those of the sender whose turn ended before it, in whose context the turn begins."""
    office = Office(tmp_path / "office.db")
    async with office.engine as engine:
        conversation = await engine.create(policy=presets.assistant())
        first = send_as("Ann", conversation, "Note this")
        await office.began.wait()
        other = await engine.get(conversation.id) if fresh_handle else conversation
        second = send_as("Bob", other, "And this", when_busy="queue")
        await asyncio.sleep(0.01)
        office.goes_on.set()
        await asyncio.gather(first, second)

    assert office.ran_for == ["Ann", "Ann", "Bob", "Bob"]


async def test_a_turn_that_several_messages_begin_has_those_of_the_first(tmp_path: Path) -> None:
    """Messages that wait one after the other begin a turn together."""
    office = Office(tmp_path / "office.db")
    async with office.engine as engine:
        conversation = await engine.create(policy=presets.assistant())
        first = send_as("Ann", conversation, "Note this")
        await office.began.wait()
        others = [send_as(user, conversation, f"{user}'s", when_busy="queue") for user in ("Bob", "Cy")]
        await asyncio.sleep(0.01)
        office.goes_on.set()
        await asyncio.gather(first, *others)

    assert office.ran_for == ["Ann", "Ann", "Bob", "Bob"]


async def test_messages_that_come_during_a_turn_do_not_change_those_of_its_tools(tmp_path: Path) -> None:
    """However many come while its steps are stored."""
    office = Office(tmp_path / "office.db")
    office.goes_on.set()
    async with office.engine as engine:
        conversation = await engine.create(policy=presets.assistant())
        first = send_as("Ann", conversation, "Note this")
        others = [send_as("Bob", conversation, f"{number}", when_busy="queue") for number in range(20)]
        await asyncio.gather(first, *others)

    assert office.ran_for[:4] == ["Ann", "Ann", "Bob", "Bob"]
