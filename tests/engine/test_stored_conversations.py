"""The first step of a stored conversation costs what its head costs, however long it is.

The history is read where a model is to be told of it, or where somebody asks what was said, and only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, StoredEntry
from turnwise.engine.composition import PortWrappers, wrapped_ports
from turnwise.testing import FunctionLlm, call, reply

from ..support.planted.stores import WrappedStore

SHORT, LONG = 1, 12
"""Turns of the conversations that are compared."""

QUESTION = {"question": "Which one?", "header": "Table", "options": [{"label": "Kikunoi"}, {"label": "Nobu"}]}


class CountingStore(WrappedStore):
    """Counts the steps that are read from logs, and can hold up those who read them."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.steps_read = 0
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """Read them."""
        await self.may_read.wait()
        entries = await self.store.entries(conversation_id, after, up_to)
        self.steps_read += len(entries)
        return entries


@contextmanager
def counting() -> Iterator[list[CountingStore]]:
    """Count what the engines read that are opened in this block; the stores are added to the list."""
    stores: list[CountingStore] = []

    def count(store: Any) -> Any:
        stores.append(CountingStore(store))
        return stores[-1]

    with wrapped_ports(PortWrappers(store=count)):
        yield stores


def answer(request: Any) -> Any:
    """Ask the user where the last message says so, otherwise reply."""
    if request.messages[-1]["content"] == "Ask me.":
        return call("ask_user_question", questions=[QUESTION])
    return reply("Noted.")


async def stored(file: Path, turns: int, *, asks: bool) -> str:
    """Store a conversation of some turns, which rests at a question if it `asks`. Returns its id."""
    async with Engine.open(file, model=FunctionLlm(answer), tools=["ask_user_question"]) as engine:
        conversation = await engine.create()
        for _ in range(turns):
            await conversation.send("A table for two")
        if asks:
            assert (await conversation.send("Ask me.")).status == "awaiting_user"
        return conversation.id


@asynccontextmanager
async def loaded(file: Path, turns: int, *, asks: bool) -> AsyncIterator[tuple[Conversation, CountingStore, list[int]]]:
    """Open the database again and get the conversation. The list holds how many steps were read when a model was
    asked."""
    conversation_id = await stored(file, turns, asks=asks)
    asked: list[int] = []

    def note(request: Any) -> Any:
        asked.append(stores[0].steps_read)
        return answer(request)

    with counting() as stores:
        async with Engine.open(file, model=FunctionLlm(note), tools=["ask_user_question"]) as engine:
            yield await engine.get(conversation_id), stores[0], asked


REQUESTS: tuple[Callable[[Conversation], Awaitable[object]], ...] = (
    lambda conversation: conversation.cancel(),
    lambda conversation: conversation.close(),
    lambda conversation: conversation.set_tools([]),
)


@pytest.mark.parametrize("turns", [SHORT, LONG])
class TestStoredConversations:
    """Nothing of the history is read for what does not need it."""

    async def test_getting_one_reads_its_head_only(self, turns: int, tmp_path: Path) -> None:
        """Its state and its settings are known without its log."""
        async with loaded(tmp_path / "a.db", turns, asks=True) as (conversation, store, _):
            assert conversation.state.type == "awaiting_user_response"
            assert conversation.system == ""
            assert conversation.policy.recovery is not None

            assert store.steps_read == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("request_of", REQUESTS, ids=["cancel", "close", "set_tools"])
    async def test_a_request_that_needs_no_model_reads_no_history(
        self, request_of: Callable[[Conversation], Awaitable[object]], turns: int, tmp_path: Path
    ) -> None:
        """Also where it ends a turn that rests at a question."""
        async with loaded(tmp_path / "a.db", turns, asks=True) as (conversation, store, asked):
            await request_of(conversation)

            assert (store.steps_read, asked) == (0, [])

    async def test_a_message_is_stored_before_the_history_is_read(self, turns: int, tmp_path: Path) -> None:
        """The caller need not wait for what the model is told: here that cannot be read meanwhile."""
        async with loaded(tmp_path / "a.db", turns, asks=False) as (conversation, store, asked):
            store.may_read.clear()
            await conversation.send("A table for two", message_id="1", wait=False)
            store.may_read.set()

            await conversation.send("A table for two", message_id="1")
            assert len(asked) == 1

    @pytest.mark.parametrize("asks", [False, True])
    async def test_the_history_is_read_once_for_the_request_to_the_model(
        self, asks: bool, turns: int, tmp_path: Path
    ) -> None:
        """The turn that follows reads nothing more."""
        async with loaded(tmp_path / "a.db", turns, asks=asks) as (conversation, store, asked):
            steps = conversation.state.book.seq + 1
            turn = await (conversation.answer({"Which one?": "Nobu"}) if asks else conversation.send("A table for two"))
            await conversation.send("And another one")

            assert turn.status == "completed"
            assert asked == [steps, steps]
            assert store.steps_read == steps
