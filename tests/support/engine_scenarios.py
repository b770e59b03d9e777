"""What tests of the engine share: doors that hold things up, watchers, a tool that talks, a disk that is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from turnwise import Conversation, Delivery, Engine, Speech, Update, tool
from turnwise.states import Idle, Message

QUESTION = {"question": "When?", "header": "Time", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}


@tool(crash="idempotent", acts=("speech",), exclusive=True)
async def talk(text: str) -> Speech:
    """Say something to the user now."""
    return Speech(text=text, when="now")


def said(text: str, number: int = 1, conversation_id: str = "c") -> Delivery:
    """A delivery of this text, the one of this number."""
    return Delivery(text, conversation_id, turn=1, ordinal=number, key=f"{conversation_id}/{number}")


class Gate:
    """A tool's or a model's door: a test sees when somebody arrived, and lets them through."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        """Arrive, and wait to be let through."""
        self.arrived.set()
        await self.opened.wait()


@asynccontextmanager
async def full_disk(engine: Engine) -> AsyncIterator[None]:
    """While this holds, the database takes no writes, for a real reason."""

    async def query_only(value: str) -> None:
        await engine.store.database.writing.run(
            lambda connection: connection.connection.driver_connection.execute(f"PRAGMA query_only = {value}")
        )

    await query_only("ON")
    try:
        yield
    finally:
        await query_only("OFF")


def answers_after(gate: Gate, text: str) -> Callable[[Any], Any]:
    """A model's function that says the text once the gate is open."""

    async def answer(request: Any) -> str:
        await gate()
        return text

    return answer


def results(messages: tuple[Message, ...]) -> list[str]:
    """The texts of the tools' results, as they stand."""
    return [message.text for message in messages if message.role == "tool"]


def assert_paired(messages: tuple[Message, ...]) -> None:
    """Every call has exactly one result, directly behind its message, in call order."""
    left = list(messages)
    while left:
        message = left.pop(0)
        wanted = [made.call_id for made in message.tool_calls]
        got = [left.pop(0).tool_call_id for _ in wanted]
        assert got == wanted


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop its turns until this holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def has_rested(conversation: Conversation, turns: int) -> None:
    """Wait until so many turns are over."""
    await until(lambda: isinstance(conversation.state, Idle) and conversation.state.book.turn >= turns)


class Watcher:
    """Collects the updates of a conversation while a test runs."""

    def __init__(self, conversation: Conversation, after: str | None = None) -> None:
        self.updates: list[Update] = []
        self._source = conversation.updates(after)
        self.collecting = asyncio.ensure_future(self._collect())

    async def _collect(self) -> None:
        async for update in self._source:
            self.updates.append(update)

    def types(self) -> list[str]:
        """The types of what was seen."""
        return [update.type for update in self.updates]

    async def until(self, kind: str, count: int = 1) -> Update:
        """Wait for the `count`-th update of this type."""
        await until(lambda: self.types().count(kind) >= count)
        return [update for update in self.updates if update.type == kind][-1]

    async def stop(self) -> None:
        """Watch no longer."""
        self.collecting.cancel()
        await asyncio.wait([self.collecting])
