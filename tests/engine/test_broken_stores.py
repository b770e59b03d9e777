"""Stores that hosts plug in and that break their port: a caller gets an error, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from turnwise import Engine, EngineClosed
from turnwise.persistence.errors import Damaged, StorageFailed
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import LoadedConversation, Store
from turnwise.persistence.records import StoredEntry
from turnwise.states import Event, LlmResponse, Refused, Step, StoreError, UserMessage
from turnwise.testing import FunctionLlm, reply

from ..support.planted.stores import WrappedLog, WrappedStore

MODEL = FunctionLlm(lambda _: reply("Here."))


@pytest.fixture
async def sound() -> AsyncIterator[Store]:
    """A store in memory."""
    store = await open_store("sqlite://")
    yield store
    await store.close()


class Held:
    """A model that does not answer."""

    name = "held"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def complete(self, request: Any, show: Any) -> Any:
        """Wait."""
        self.asked.set()
        await asyncio.Event().wait()


async def left_in_the_middle(store: Store) -> str:
    """A conversation whose engine was closed while the model was asked."""
    held = Held()
    async with Engine.open(store=store, model=held) as engine:
        conversation = await engine.create()
        await conversation.send("Hi.", wait=False)
        await held.asked.wait()
    return conversation.id


class StoresAndFails(WrappedLog):
    """It stores the first message, and reports that it could not."""

    has_failed = False

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        await super().append(event, step, targets)
        if isinstance(event, UserMessage) and not self.has_failed:
            self.has_failed = True
            raise StorageFailed("The disk is full.")


class CancelsAppends(WrappedLog):
    """It cancels its own work once for each of these types of events, as a driver does that loses its connection."""

    def __init__(self, log: Any) -> None:
        super().__init__(log)
        self.cancelled: list[type[Event]] = [UserMessage, LlmResponse]

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:  # noqa: D102
        if type(event) in self.cancelled:
            self.cancelled.remove(type(event))
            raise asyncio.CancelledError
        await super().append(event, step, targets)


class MissesSteps(WrappedStore):
    """It returns the entries of a log without those that `is_kept` does not keep."""

    is_kept: Callable[[StoredEntry], bool] = staticmethod(lambda entry: True)

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        """The entries that are kept."""
        return tuple(filter(self.is_kept, await self.store.entries(conversation_id, after, up_to)))


class HandsOutTwice(WrappedStore):
    """It returns the same conversation at each claim, and twice in each."""

    async def claim(self, limit: int) -> tuple[str, ...]:
        """The same ids as ever."""
        return (await self.store.ids()) * 2


class LoadsForEver(WrappedStore):
    """It never finishes loading one conversation."""

    stuck = ""

    async def load(self, conversation_id: str) -> LoadedConversation:
        """The conversation, or nothing for ever."""
        if conversation_id == self.stuck:
            await asyncio.Event().wait()
        return await super().load(conversation_id)


class TestLogs:
    """What `append` and `catch_up` may break."""

    async def test_a_step_that_was_stored_and_reported_as_failed_is_found(self, sound: Store) -> None:
        """The log is ahead of what is in memory: whoever asks gets an error, then the conversation as stored."""
        async with Engine.open(store=WrappedStore(sound, StoresAndFails), model=MODEL) as engine:
            conversation = await engine.create()
            for error in (Refused, StoreError):
                with pytest.raises(error):
                    await conversation.send("Hi.", message_id="m1")
            again = await engine.get(conversation.id)

            assert (await again.send("Hi.", message_id="m1")).reply == "Here."
            assert [message.text for message in await again.transcript()] == ["Hi.", "Here."]

    async def test_that_is_cancelled_by_the_store_itself_has_failed(self, sound: Store) -> None:
        """A request is refused, and may be sent again; an answer is kept until it is stored."""
        async with asyncio.timeout(20), Engine.open(store=WrappedStore(sound, CancelsAppends), model=MODEL) as engine:
            conversation = await engine.create()
            with pytest.raises(Refused) as refused:
                await conversation.send("Hi.")

            assert refused.value.code == "storage"
            assert (await conversation.send("Hi.")).reply == "Here."


class TestEntries:
    """A log with steps missing."""

    async def test_nobody_is_shown_a_part_of_it(self, sound: Store) -> None:
        """Turns, updates and new messages report the missing step, and no model is asked without it."""
        store = MissesSteps(sound)
        async with Engine.open(store=store, model=MODEL) as engine:
            conversation_id = (await engine.create()).id
            await (await engine.get(conversation_id)).send("Hi.")
        store.is_kept = lambda entry: entry.seq != 2
        async with Engine.open(store=store, model=MODEL) as engine:
            conversation = await engine.get(conversation_id)

            for asked in (conversation.turns(), anext(conversation.updates()), conversation.send("Hello?")):
                with pytest.raises(Damaged, match="Step 2 is missing"):
                    await asked


class TestClaims:
    """Taking over."""

    async def test_what_is_handed_out_twice_is_taken_over_once(self, sound: Store) -> None:
        """The machine hears once that a process has died, and opening ends."""
        conversation_id = await left_in_the_middle(sound)

        async with Engine.open(store=HandsOutTwice(sound), model=Held()):
            stored = [entry.event.type for entry in await sound.entries(conversation_id)]

        assert stored == ["opened", "user_message", "resumed"]

    async def test_what_a_closed_engine_claimed_is_for_the_next(self, sound: Store) -> None:
        """Three engines, one after the other over one open store: each goes on where the one before was closed."""
        conversation_id = await left_in_the_middle(sound)

        for _ in range(2):
            async with Engine.open(store=sound, model=Held()):
                pass

        stored = [entry.event.type for entry in await sound.entries(conversation_id)]
        assert stored == ["opened", "user_message", "resumed", "resumed"]


class TestLoads:
    """A conversation that does not load."""

    async def test_holds_up_no_other_and_no_closing(self, sound: Store) -> None:
        """Others go on, and whoever waits for it learns that the engine is closed."""
        store = LoadsForEver(sound)
        async with Engine.open(store=sound, model=MODEL) as engine:
            stuck, other = (await engine.create()).id, (await engine.create()).id
        store.stuck = stuck
        async with Engine.open(store=store, model=MODEL) as engine:
            getting = asyncio.ensure_future(engine.get(stuck))
            await asyncio.sleep(0)
            assert (await (await engine.get(other)).send("Hi.")).reply == "Here."

        with pytest.raises(EngineClosed):
            await getting

    async def test_an_opening_that_waits_for_it_can_be_given_up(self, sound: Store) -> None:
        """A caller that is cancelled gets away."""
        store = LoadsForEver(sound)
        store.stuck = await left_in_the_middle(sound)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), Engine.open(store=store, model=MODEL):
                pass
