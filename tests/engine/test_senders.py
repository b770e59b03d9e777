"""The effects of a turn run in the context variables of whoever sent the message that began it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from itertools import takewhile
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from turnwise import Delivery, Engine, Turn, presets, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.hosts.http import create_app
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


class Chat:
    """A model, a tool and a channel that note for whom they run. The channel takes its time, and may fail at first."""

    name = "chat"

    def __init__(self, *, fails: bool = True) -> None:
        self.noted: list[tuple[str, str]] = []
        self._fails = fails

        @tool(crash="pure")
        async def note() -> str:
            """Note."""
            self._note("tool")
            await asyncio.sleep(0.05)
            return "noted"

        self.options: dict[str, Any] = {"model": FunctionLlm(self._answer), "tools": [note], "channels": [self]}

    def _note(self, part: str) -> None:
        self.noted.append((part, USER.get()))

    def _answer(self, request: ModelRequest) -> ModelAnswer:
        self._note("model")
        users = [message["content"] for message in request.messages if message["role"] == "user"]
        return reply(f"Hello {users[-1]}") if request.messages[-1]["role"] == "tool" else call("note")

    async def deliver(self, delivery: Delivery) -> None:
        """Take a delivery after a moment, but perhaps not at the first attempt."""
        self._note(f"delivery of {delivery.text}")
        await asyncio.sleep(0.05)
        if self._fails:
            self._fails = False
            raise RuntimeError

    async def has_noted(self, count: int, part: str) -> None:
        """Return when this part of the work has begun so many times."""
        async with asyncio.timeout(30):
            while sum(noted.startswith(part) for noted, _ in self.noted) < count:
                await asyncio.sleep(0.001)

    def work(self) -> list[tuple[str, str]]:
        """What the models and tools did, and for whom."""
        return [(part, user) for part, user in self.noted if not part.startswith("delivery")]

    def deliveries(self) -> set[tuple[str, str]]:
        """What was delivered, and for whom."""
        return set(self.noted).difference(self.work())


def of_turns(*users: str) -> list[tuple[str, str]]:
    """What is done in a turn of each of these users."""
    return [(part, user) for user in users for part in ("model", "tool", "model")]


async def test_models_tools_and_channels_run_for_whoever_sent_the_message() -> None:
    """Also a reply that goes out in the step that begins the next turn, and one that waits behind another one."""
    chat = Chat()
    async with Engine.open("sqlite://", **chat.options) as engine:
        conversation = await engine.create()
        turns = [send_as("Ann", conversation, "Ann")]
        for count, user in enumerate(("Bob", "Cy"), start=1):
            await chat.has_noted(count, "tool")
            turns.append(send_as(user, await engine.get(conversation.id), user, when_busy="queue"))
        await asyncio.gather(*turns)
        await chat.has_noted(4, "delivery")

    assert chat.work() == of_turns("Ann", "Bob", "Cy")
    assert chat.deliveries() == {(f"delivery of Hello {user}", user) for user in ("Ann", "Bob", "Cy")}


def test_each_thread_that_sends_brings_its_own() -> None:
    """The engine runs in another thread then."""
    chat = Chat(fails=False)

    def send(user: str) -> None:
        USER.set(user)
        conversation.send(user, when_busy="queue")

    with Engine.open_blocking("sqlite://", **chat.options) as engine:
        conversation = engine.create()
        for user in ("Ann", "Bob"):
            thread = Thread(target=send, args=(user,))
            thread.start()
            thread.join()

    assert chat.work() == of_turns("Ann", "Bob")
    assert chat.deliveries() == {(f"delivery of Hello {user}", user) for user in ("Ann", "Bob")}


async def test_each_request_over_http_brings_its_own() -> None:
    """As a middleware sets them, also for a message that waits."""
    chat = Chat()
    engine = Engine.open("sqlite://", **chat.options)
    app = create_app(engine)

    async def named(scope: Any, receive: Any, send: Any) -> None:
        USER.set(dict(scope.get("headers", ())).get(b"x-user", b"nobody").decode())
        await app(scope, receive, send)

    transport = httpx.ASGITransport(named)
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        conversation = (await client.post("/conversations", json={})).json()["id"]
        for count, user in enumerate(("Ann", "Bob")):
            await chat.has_noted(count, "tool")
            sent = {"text": user, "message_id": user, "when_busy": "queue"}
            answer = await client.post(f"/conversations/{conversation}/messages", json=sent, headers={"x-user": user})
            assert answer.is_success, answer.text
        await chat.has_noted(3, "delivery")

    assert chat.work() == of_turns("Ann", "Bob")
    assert chat.deliveries() == {(f"delivery of Hello {user}", user) for user in ("Ann", "Bob")}
