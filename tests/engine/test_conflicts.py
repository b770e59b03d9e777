"""Two engines over one store: the log decides, and each follows what the other has stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwise import Delivery, Engine, EngineClosed, InvalidInput
from turnwise.effects.context import EffectContext
from turnwise.engine.loop import Loop
from turnwise.engine.updates import updates_of_log
from turnwise.persistence.opening import open_store
from turnwise.persistence.records import StoredEntry
from turnwise.states import AwaitedEffect, Effect, LlmFailed, Policy, Refused, Retry, UnknownConversation
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, reply

from ..support.engine_scenarios import until
from ..support.planted.stores import WrappedLog, WrappedStore


@asynccontextmanager
async def two_engines(left: Any = None, right: Any = None, **options: Any) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines over one store in memory, whose models answer alike unless others are given."""
    answers = FunctionLlm(lambda _: reply("Here."))
    store = await open_store("sqlite://")
    try:
        async with (
            Engine.open(store=store, model=left or answers, **options) as one,
            Engine.open(store=store, model=right or answers, **options) as other,
        ):
            yield one, other
    finally:
        await store.close()


class Held:
    """A model that answers when it is told to."""

    name = "held"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()

    async def complete(self, request: Any, show: Any) -> Any:
        """Wait, then answer."""
        self.asked.set()
        await self.release.wait()
        return reply("At last.")


class TestRequests:
    """A request that meets a log which has moved on."""

    async def test_it_is_put_to_the_machine_again(self) -> None:
        """The conversation follows the missed steps, and takes the request after them."""
        async with two_engines() as (one, other):
            late = await one.create()
            await (await other.get(late.id)).send("First.")

            turn = await late.send("Second.")

            assert (turn.number, turn.reply) == (2, "Here.")
            assert [message.text for message in await late.transcript()] == ["First.", "Here.", "Second.", "Here."]
            assert (await late.replay()).divergence is None

    async def test_it_may_be_refused_now(self) -> None:
        """What would have been taken before the other engine moved is refused by the state that it led to."""
        held = Held()
        async with two_engines(right=held) as (one, other):
            late = await one.create()
            going = asyncio.ensure_future((await other.get(late.id)).send("First."))
            await held.asked.wait()

            with pytest.raises(Refused) as refused:
                await late.send("Second.", when_busy="refuse")
            held.release.set()

            assert refused.value.code == "busy"
            assert (await going).reply == "At last."

    async def test_the_same_request_is_taken_once(self) -> None:
        """Sent to both engines under one id, it is in the log once, and both callers get its turn."""
        async with two_engines() as (one, other):
            here = await one.create()
            there = await other.get(here.id)
            first = await there.send("Hi.", message_id="m1")

            second = await here.send("Hi.", message_id="m1")

            assert first.number == second.number == 1
            assert [message.text for message in await here.transcript()] == ["Hi.", "Here."]

    async def test_another_request_under_the_same_id_is_refused(self) -> None:
        """Also where only the other engine has seen the first one."""
        async with two_engines() as (one, other):
            here = await one.create()
            await (await other.get(here.id)).send("Hi.", message_id="m1")

            with pytest.raises(Refused) as refused:
                await here.send("Something else.", message_id="m1")

            assert refused.value.code == "event_id_reused"

    async def test_a_conversation_that_the_other_deleted_is_unknown(self) -> None:
        """Nothing can be stored in it any more."""
        async with two_engines() as (one, other):
            late = await one.create()
            await other.delete(late.id)

            with pytest.raises(UnknownConversation):
                await late.send("Hello?")


class DeletesMeanwhile(WrappedLog):
    """A log whose conversation another engine deletes before it is asked for a request."""

    def __init__(self, log: Any, delete: Callable[[], Awaitable[None]]) -> None:
        super().__init__(log)
        self.delete = delete

    async def request(self, event_id: str) -> StoredEntry | None:
        """Look for the request when the conversation is gone."""
        await self.delete()
        return await super().request(event_id)


class TestRepeatedRequests:
    """A request is repeated in an engine that did not take it, while the other engine deletes the conversation."""

    @pytest.mark.parametrize("state", ["idle", "busy", "closed"])
    async def test_the_conversation_is_unknown(self, state: str) -> None:
        """Not in conflict, and not busy or closed: the request was taken, in a conversation that is gone."""
        held = Held()
        store = await open_store("sqlite://")
        async with Engine.open(store=store, model=held) as one:
            here = await one.create()
            sending = asyncio.ensure_future(here.send("Hi.", message_id="m1"))
            await held.asked.wait()
            if state != "busy":
                held.release.set()
                await sending
            if state == "closed":
                await here.close()
            slow = WrappedStore(store, lambda log: DeletesMeanwhile(log, lambda: one.delete(here.id)))
            async with Engine.open(store=slow, model=held) as other:
                there = await other.get(here.id)

                with pytest.raises(UnknownConversation):
                    await there.send("Hi.", message_id="m1", when_busy="refuse")
            await asyncio.gather(sending, return_exceptions=True)
        await store.close()


class TestEffects:
    """Who commits a step carries out its effects."""

    async def test_a_missed_step_is_not_carried_out_again(self) -> None:
        """The model is asked by the engine that took the message, and by no other."""
        asked: list[str] = []

        def model(name: str) -> FunctionLlm:
            return FunctionLlm(lambda _: (asked.append(name), reply("Here."))[1])

        async with two_engines(model("one"), model("other")) as (one, other):
            late = await one.create()
            await (await other.get(late.id)).send("First.")
            await one.refresh(late.id)

            assert asked == ["other"]
            assert late.state.type == "idle"

    async def test_a_cancel_by_the_other_stops_what_runs_here(self) -> None:
        """The engine that runs the effect learns of it with its next step, and tells its dispatcher."""
        held = Held()
        async with two_engines(left=held) as (one, other):
            here = await one.create()
            going = asyncio.ensure_future(here.send("First."))
            await held.asked.wait()
            there = await other.get(here.id)
            await there.cancel()

            await one.refresh(here.id)
            turn = await going

            assert turn.status == "cancelled"
            assert here.state.type == "idle"

    async def test_an_answer_that_was_overtaken_is_ignored(self) -> None:
        """The answer to an effect that the other engine has cancelled meets a log that has moved on."""
        held = Held()
        async with two_engines(left=held) as (one, other):
            here = await one.create()
            going = asyncio.ensure_future(here.send("First."))
            await held.asked.wait()
            await (await other.get(here.id)).cancel()
            held.release.set()

            turn = await going

            assert turn.status == "cancelled"
            assert (await here.replay()).divergence is None

    async def test_opening_a_second_engine_takes_nothing_over_that_was_claimed(self) -> None:
        """To read a conversation changes and reports nothing: only what the store hands out is taken over."""
        held = Held()
        async with two_engines(left=held) as (one, other):
            here = await one.create()
            going = asyncio.ensure_future(here.send("First."))
            await held.asked.wait()
            before = await here.events()

            there = await other.get(here.id)
            assert there.state.type == "llm_requesting"
            await asyncio.sleep(0)

            assert await there.events() == before
            held.release.set()
            assert (await going).reply == "At last."


class Noting:
    """A dispatcher that notes what it is to begin, and begins nothing."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Note the effects that are awaited."""
        self.begun += [(effect.type, effect.effect_id) for effect in effects if isinstance(effect, AwaitedEffect)]

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Nothing runs here."""

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Nothing is sent here."""

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Nothing runs here."""

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Nothing is sent here."""


class TestTakingOver:
    """An engine takes a conversation over, while the engine that drove it still stores a step."""

    async def test_what_the_step_has_begun_is_taken_over_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """P27: the resume conflicts with that step; then all that is in flight is begun again, and it counts once."""
        dying, taking = Noting(), Noting()
        store = await open_store("sqlite://")
        async with Engine.open(store=store, model=ScriptedLlm([]), dispatcher=dying) as one:
            here = await one.create(policy=Policy(retry=Retry()))
            sending = asyncio.ensure_future(here.send("First."))
            while not dying.begun:
                await asyncio.sleep(0)
            (asked,) = here.state.in_flight()
            take_over = Loop.take_over

            async def taken_over(loop: Loop) -> None:
                """The last step of the other engine is stored behind what this one has read."""
                one.answer(here.id, LlmFailed(effect_id=asked, at=datetime.now(UTC), kind="network", sentence="No."))
                await take_over(loop)

            monkeypatch.setattr(Loop, "take_over", taken_over)
            async with Engine.open(store=store, model=ScriptedLlm([]), dispatcher=taking) as other:
                there = await other.get(here.id)
                async with asyncio.timeout(60):
                    while there.state.type != "retry_waiting" or not taking.begun:
                        await asyncio.sleep(0.01)

                assert taking.begun == [("start_timer", timer) for timer in there.state.in_flight()]
                assert there.state.resumes == 1  # type: ignore[union-attr]
            sending.cancel()
        await store.close()


class TestWatchers:
    """Who watches in one engine sees what the other has stored."""

    async def test_missed_steps_are_shown_once_and_in_order(self) -> None:
        """The ids of the updates are those of the log, whoever stored the steps."""
        async with two_engines() as (one, other):
            here = await one.create()
            seen: list[Any] = []

            async def watch(conversation: Any, into: list[Any]) -> None:
                async for update in conversation.updates():
                    if update.id is not None:
                        into.append(update)

            watching = asyncio.ensure_future(watch(here, seen))
            await asyncio.sleep(0.01)
            await (await other.get(here.id)).send("First.")
            await here.send("Second.")
            await here.close()
            await watching

            logged = list(updates_of_log(await here.events()))
            assert [(update.id, update.type) for update in seen if update.type != "snapshot"] == [
                (update.id, update.type) for update in logged
            ]

    async def test_a_watcher_goes_on_after_an_update_that_the_other_showed(self) -> None:
        """Its connection may come back to another engine, which has not followed that step yet."""
        async with two_engines() as (one, other):
            here = await one.create()
            there = await other.get(here.id)
            await here.send("First.")
            first = list(updates_of_log(await here.events()))
            await here.send("Second.")

            watching = there.updates(after=first[-1].id)
            logged = list(updates_of_log(await here.events()))
            shown = [await anext(watching) for _ in logged[len(first) :]]

            assert [update.id for update in shown] == [update.id for update in logged[len(first) :]]
            with pytest.raises(InvalidInput):
                await anext(there.updates(after="1000.1"))

    async def test_a_caller_that_waits_gets_a_turn_that_the_other_ended(self) -> None:
        """A message that waits here is taken and answered there."""
        held = Held()
        async with two_engines(right=held) as (one, other):
            here = await one.create()
            there = await other.get(here.id)
            first = asyncio.ensure_future(there.send("First."))
            await held.asked.wait()
            queued = asyncio.ensure_future(here.send("Second.", when_busy="queue"))
            while not getattr(here.state, "inbox", ()):
                await asyncio.sleep(0.001)

            held.release.set()
            await first
            while not queued.done():
                await one.refresh(here.id)
                await asyncio.sleep(0.001)

            assert (await queued).reply == "At last."


class Street:
    """Two channels of one name, one for each engine, into which the texts of both go in the order of their arrival."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_down = True
        self.left, self.right = (
            RecordingChannel(self._deliver_left, name="street"),
            RecordingChannel(self._deliver, name="street"),
        )

    def _deliver(self, delivery: Delivery) -> None:
        self.texts.append(delivery.text)

    def _deliver_left(self, delivery: Delivery) -> None:
        if self.is_down:
            raise ConnectionError
        self._deliver(delivery)


@asynccontextmanager
async def on_a_street(street: Street, clock: ManualClock) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines over one store in memory, each with its channel. The model says what it hears."""
    store = await open_store("sqlite://")
    answers = FunctionLlm(lambda request: f"Re: {request.messages[-1]['content']}")
    try:
        async with (
            Engine.open(store=store, model=answers, clock=clock, channels=[street.left]) as one,
            Engine.open(store=store, model=answers, clock=clock, channels=[street.right]) as other,
        ):
            yield one, other
    finally:
        await store.close()


async def ticks(clock: ManualClock, seconds: float) -> None:
    """Let so much time pass, in small steps, in which the store can be read."""
    for _ in range(round(seconds * 2)):
        await clock.advance(0.5)
        await asyncio.sleep(0.01)


class TestDeliveries:
    """What was said arrives in its order, whichever engine has each turn."""

    async def test_a_turn_in_the_other_engine_waits_for_what_was_said_before(self) -> None:
        """The first engine's channel is down for a while; callers do not wait for that."""
        clock, street = ManualClock(), Street()
        async with on_a_street(street, clock) as (one, other):
            here = await one.create()
            await here.send("1")
            await one.delivered()
            there = await other.get(here.id)
            await there.send("2")
            await there.send("3")
            await other.delivered()
            await ticks(clock, 3)
            assert street.texts == []
            assert len(street.left.failed) > 1

            street.is_down = False
            await ticks(clock, 6)

            assert street.texts == ["Re: 1", "Re: 2", "Re: 3"]
            assert await one.store.outbox([here.id]) == ()

    async def test_an_engine_that_closes_leaves_its_deliveries_to_the_other(self) -> None:
        """They go before those of later turns, and each arrives once."""
        clock, street = ManualClock(), Street()
        async with on_a_street(street, clock) as (one, other):
            here = await one.create()
            await here.send("1")
            await until(lambda: len(street.left.failed) == 1)
            there = await other.get(here.id)
            await there.send("2")

            await one.close()
            await ticks(clock, 6)

            assert street.texts == ["Re: 1", "Re: 2"]
            assert await other.store.outbox([here.id]) == ()

    async def test_an_engine_alone_does_not_ask_the_store(self) -> None:
        """Only where others share the store may the outbox hold what they have yet to deliver."""
        channel, asked = RecordingChannel(), 0

        class Counting(WrappedStore):
            async def outbox(self, conversation_ids: Any) -> Any:
                nonlocal asked
                asked += 1
                return await super().outbox(conversation_ids)

        store = await open_store("sqlite://")
        async with Engine.open(
            store=Counting(store), model=FunctionLlm(lambda _: "Here."), channels=[channel]
        ) as engine:
            conversation = await engine.create()
            before = asked
            for text in "123":
                await conversation.send(text)
            await engine.delivered()
            assert (len(channel.texts), asked) == (3, before)
        await store.close()


class TestClosing:
    """An engine closes while a turn runs in it; the other goes on with the turn."""

    async def test_a_caller_in_the_other_gets_the_turn(self) -> None:
        """Whoever waits there is answered, and whoever waits here is told that the engine has closed."""
        held = Held()
        held.name = "function"
        async with two_engines(left=held) as (one, other):
            here = await one.create()
            sending = asyncio.ensure_future(here.send("Hi"))
            await held.asked.wait()
            there = await other.get(here.id)
            waiting = asyncio.ensure_future(there.wait())
            await asyncio.sleep(0.01)

            await one.close()

            with pytest.raises(EngineClosed):
                await sending
            async with asyncio.timeout(30):
                assert (await waiting).reply == "Here."
            assert (await there.replay()).divergence is None
            assert [turn.number for turn in await there.turns()] == [1]

    async def test_the_turn_goes_on_although_nobody_waits(self) -> None:
        """The other engine has not even read the conversation."""
        held = Held()
        held.name = "function"
        async with two_engines(left=held) as (one, other):
            here = await one.create()
            await here.send("Hi", wait=False)
            await held.asked.wait()

            await one.close()

            there = await other.get(here.id)
            async with asyncio.timeout(30):
                assert (await there.wait()).reply == "Here."
