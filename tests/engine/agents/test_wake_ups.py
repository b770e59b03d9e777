"""Conversations wake up by their schedules, whatever engine is open, with one timer for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, Schedule, Store, StoreError
from turnwise.engine.agents import wake_ups
from turnwise.persistence.opening import open_store
from turnwise.states import ScheduleChanged
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing import FunctionLlm, ManualClock

from ...support.clocks import ServerClock, asleep, clock_of
from ...support.databases import BOTH_STORES, Database, stores
from ...support.engine_scenarios import Gate, Watcher, answers_after, full_disk, has_rested, until

pytestmark = BOTH_STORES

NOON = ManualClock().now()
HOUR = timedelta(hours=1)


def woken(request: Any) -> str:
    """The model's answer to any request."""
    return "I have looked."


@asynccontextmanager
async def opened(where: Path | str, clock: ManualClock, answers: Any = woken, **options: Any) -> AsyncIterator[Engine]:
    """An engine with this clock."""
    async with Engine.open(where, model=FunctionLlm(answers), clock=clock, **options) as engine:
        if isinstance(clock, ServerClock):
            await clock.call_for_due()
        yield engine


async def tasks_of(conversation: Conversation) -> list[str]:
    """The tasks that the schedule brought, in order."""
    return [message.text for message in await conversation.transcript() if message.origin == "schedule"]


class TestWakingUp:
    """A moment of a schedule begins a turn."""

    async def test_at_each_moment(self, database: Database) -> None:
        """The task is read, the model answers, and the next moment is an interval later."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            conversation = await engine.create(role="background", every=60, task="Look around.")
            assert conversation.next_wake == NOON + timedelta(seconds=60)
            for turn in (1, 2, 3):
                await asleep(clock, NOON + timedelta(seconds=60 * turn))
                await clock.advance(60)
                await has_rested(conversation, turn)

            assert await tasks_of(conversation) == ["Look around."] * 3
            assert conversation.next_wake == NOON + timedelta(seconds=240)
            assert (await conversation.replay()).divergence is None

    async def test_everybody_sees_who_began_the_turn(self, database: Database) -> None:
        """Updates show an agent's message; searches of what people said do not find it, and it is no title."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            conversation = await engine.create(owner="ada", every=60, task="Look for sushi.")
            watcher = Watcher(conversation)
            await asleep(clock, NOON + timedelta(seconds=60))
            await clock.advance(60)
            await has_rested(conversation, 1)
            await watcher.until("turn_ended")
            await watcher.stop()

            shown = [update.data for update in watcher.updates if update.type == "message"]
            assert [message.get("origin") for message in shown] == ["schedule", None]
            assert shown[0]["text"] == "Look for sushi."
            query = MemoryQuery(MemoryScope("", "ada", 0), ("sushi",), None, None, 10)
            assert await engine.store.search(query) == ()
            (summary,) = await engine.list()
            assert not summary.title

    async def test_not_before_it(self, database: Database) -> None:
        """A microsecond earlier nothing happens."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            conversation = await engine.create(every=30, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=30))

            await clock.advance(29.999_999)

            assert conversation.state.book.turn == 0

    async def test_by_a_cron_expression(self, database: Database) -> None:
        """In the time of a place."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            conversation = await engine.create(cron="30 14 * * *", zone="Europe/Berlin", task="Read the news.")
            assert conversation.next_wake == NOON + timedelta(minutes=30)
            await asleep(clock, NOON + timedelta(minutes=30))

            await clock.advance(30 * 60)
            await has_rested(conversation, 1)

            assert conversation.next_wake == NOON + timedelta(days=1, minutes=30)

    async def test_during_a_turn_it_waits(self, database: Database) -> None:
        """The turn under way ends first; however many moments pass meanwhile, one more turn follows."""
        clock, gate = clock_of(database), Gate()
        async with opened(database, clock, answers_after(gate, "Hello.")) as engine:
            conversation = await engine.create(every=10, task="Look around.")
            sending = asyncio.ensure_future(conversation.send("Hello"))
            await gate.arrived.wait()
            for _ in range(5):
                wake = conversation.next_wake
                assert wake is not None
                await asleep(clock, wake)
                await clock.advance_to(wake)
                await until(lambda wake=wake: conversation.next_wake != wake)

            gate.opened.set()
            await sending
            await has_rested(conversation, 2)

            assert await tasks_of(conversation) == ["Look around."]
            assert conversation.state.book.turn == 2

    async def test_a_schedule_that_is_earlier_interrupts_the_sleep(self, database: Database) -> None:
        """The timer sleeps until the earliest moment of all conversations."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            await engine.create(every=50, task="Later.")
            await asleep(clock, NOON + timedelta(seconds=50))
            early = await engine.create(every=10, task="Soon.")
            other = await engine.create()
            await other.set_schedule(every=5, task="Sooner.")
            await asleep(clock, NOON + timedelta(seconds=5))

            await clock.advance(5)
            await has_rested(other, 1)
            await asleep(clock, NOON + timedelta(seconds=10))
            await clock.advance(5)
            await has_rested(early, 1)

            assert await tasks_of(early) == ["Soon."]

    async def test_a_schedule_that_was_taken_away_wakes_nobody(self, database: Database) -> None:
        """Nor does that of a conversation that was closed or deleted."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            changed, closed, deleted = [await engine.create(every=10, task="Look.") for _ in range(3)]
            await changed.set_schedule()
            await closed.close()
            await engine.delete(deleted.id)
            assert (changed.schedule, changed.next_wake, closed.next_wake) == (None, None, None)

            await clock.advance(60)
            await until(lambda: clock.sleepers == ())

            assert (changed.state.book.turn, closed.state.book.turn) == (0, 0)

    async def test_a_moment_that_comes_again_wakes_again(self, database: Database) -> None:
        """The time of day was set back, and a new schedule has a moment that was once before."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            conversation = await engine.create(every=10, task="Once.")
            await asleep(clock, NOON + timedelta(seconds=10))
            await clock.advance(10)
            await has_rested(conversation, 1)

            again = NOON + timedelta(seconds=10)
            schedule = Schedule(every=10, task="Again.")
            change = ScheduleChanged(event_id="back", at=NOON, schedule=schedule, next_wake=again)
            await conversation.dispatch(change)
            await clock.advance(0)
            await has_rested(conversation, 2)

            assert await tasks_of(conversation) == ["Once.", "Again."]


class TestWhileNobodyRan:
    """What was due while no process ran happens once, when an engine opens."""

    async def test_missed_intervals_fire_once(self, database: Database) -> None:
        """Ten hours later there is one turn, and the next moment keeps the phase of the first."""
        async with opened(database, clock_of(database)) as engine:
            conversation_id = (await engine.create(every=3600, task="Look around.")).id

        late = clock_of(database, NOON + 10 * HOUR + timedelta(minutes=5))
        async with opened(database, late) as engine:
            conversation = await engine.get(conversation_id)
            await has_rested(conversation, 1)
            await asleep(late, NOON + 11 * HOUR)

            assert await tasks_of(conversation) == ["Look around."]
            assert conversation.next_wake == NOON + 11 * HOUR
            assert conversation.schedule == Schedule(every=3600, task="Look around.")

        async with opened(database, late) as engine:
            again = await engine.get(conversation_id)
            await asleep(late, NOON + 11 * HOUR)

            assert await tasks_of(again) == ["Look around."]

    async def test_a_cron_expression_fires_once(self, database: Database) -> None:
        """However many of its moments are over."""
        async with opened(database, clock_of(database)) as engine:
            conversation_id = (await engine.create(cron="*/5 * * * *", task="Look around.")).id

        late = clock_of(database, NOON + timedelta(days=3, minutes=1))
        async with opened(database, late) as engine:
            conversation = await engine.get(conversation_id)
            await has_rested(conversation, 1)

            assert await tasks_of(conversation) == ["Look around."]
            assert conversation.next_wake == NOON + timedelta(days=3, minutes=5)

    async def test_what_is_not_due_waits(self, database: Database) -> None:
        """The engine that opens sleeps until its moment."""
        async with opened(database, clock_of(database)) as engine:
            conversation_id = (await engine.create(every=3600, task="Look around.")).id

        soon = clock_of(database, NOON + timedelta(minutes=59, seconds=30))
        async with opened(database, soon) as engine:
            conversation = await engine.get(conversation_id)
            await asleep(soon, NOON + HOUR)
            assert conversation.state.book.turn == 0

            await soon.advance(30)
            await has_rested(conversation, 1)


class TestTwoEngines:
    """Two engines over one store find the same wake-up, and it happens once."""

    async def test_a_moment_wakes_once(self, database: Database) -> None:
        """Whichever of them is faster; both know of it afterwards."""
        clock, requests = clock_of(database), []

        def answers(request: Any) -> str:
            requests.append(request)
            return "I have looked."

        async with (
            stores(database, 2) as (its_store, other_store),
            Engine.open(store=its_store, model=FunctionLlm(answers), clock=clock) as one,
            Engine.open(store=other_store, model=FunctionLlm(answers), clock=clock) as other,
        ):
            first = await one.create(every=30, task="Look around.")
            second = await other.get(first.id)
            await second.set_schedule(every=10, task="Look around.")
            for turn in (1, 2, 3):
                await other.refresh(first.id)
                due = second.next_wake
                assert due is not None
                await asleep(clock, due)
                await clock.advance_to(due)
                await has_been_taken(second, first, turn)
            await other.refresh(first.id)
            assert await tasks_of(second) == ["Look around."] * 3
            assert len(requests) == 3


async def has_been_taken(one: Conversation, other: Conversation, turns: int) -> None:
    """Wait until so many turns are over, as either engine tells it."""
    async with asyncio.timeout(60):
        while True:
            ended = [len(await conversation.turns()) for conversation in (one, other)]
            if max(ended) >= turns:
                break
            await asyncio.sleep(0.001)


class TestFailures:
    """One conversation that cannot be woken does not hold up the others."""

    async def test_a_schedule_that_cannot_be_read_is_tried_again(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its zone is not known on this machine. It stays due, with a growing wait, and says why."""
        clock = ManualClock()
        with caplog.at_level(logging.WARNING, "turnwise.agents"):
            async with opened("sqlite://", clock) as engine:
                broken = await engine.create()
                schedule = Schedule(cron="* * * * *", zone="Nowhere/At", task="Look around.")
                await broken.dispatch(
                    ScheduleChanged(event_id="1", at=NOON, schedule=schedule, next_wake=NOON + timedelta(seconds=5))
                )
                healthy = await engine.create(every=10, task="Look around.")
                await asleep(clock, NOON + timedelta(seconds=5))
                for seconds in (5, 6, 8, 10):
                    await clock.advance_to(NOON + timedelta(seconds=seconds))
                    await until(lambda: bool(clock.sleepers))
                await has_rested(healthy, 1)

                assert broken.state.book.turn == 0
                assert broken.next_wake == NOON + timedelta(seconds=5)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 3
        assert all(broken.id in each and "There is no time zone 'Nowhere/At'" in each for each in said)

    async def test_a_conversation_whose_schedule_cannot_be_read_works_all_the_same(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its wake-up is due, and cannot be taken; what people write is answered at once, and why is said."""
        clock = clock_of(database)
        async with opened(database, clock) as engine:
            broken = await engine.create()
            schedule = Schedule(cron="* * * * *", zone="Nowhere/At", task="Look around.")
            due = NOON + timedelta(seconds=5)
            await broken.dispatch(ScheduleChanged(event_id="1", at=NOON, schedule=schedule, next_wake=due))
            await asleep(clock, due)
            await clock.advance(5)
            await until(lambda: "There is no time zone 'Nowhere/At'" in caplog.text)

            turns = [await broken.send(text) for text in ("Hello", "And again")]

            assert [turn.status for turn in turns] == ["completed"] * 2
            assert [entry.event.type for entry in await broken.events()].count("resumed") == 0
            assert broken.next_wake == due

    async def test_one_that_is_deleted_meanwhile_is_no_failure(
        self, database_file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing is logged of it, and the others wake up."""
        store, clock = await open_store(database_file), ManualClock()
        try:
            async with Engine.open(store=ListsDeleted(store), model=FunctionLlm(woken), clock=clock) as engine:
                healthy = await engine.create(every=1)
                await asleep(clock, NOON + timedelta(seconds=1))
                await clock.advance(1)
                await has_rested(healthy, 1)
        finally:
            await store.close()
        assert caplog.records == []

    async def test_many_that_fail_do_not_hide_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store is asked for so many more."""
        monkeypatch.setattr(wake_ups, "BATCH", 2)
        clock = ManualClock()
        async with opened("sqlite://", clock) as engine:
            schedule = Schedule(cron="* * * * *", zone="Nowhere/At", task="Look around.")
            for number in range(5):
                broken = await engine.create()
                wake = NOON + timedelta(seconds=1 + number / 10)
                await broken.dispatch(ScheduleChanged(event_id="1", at=NOON, schedule=schedule, next_wake=wake))
            healthy = await engine.create(every=3, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=1))

            for _ in range(6):
                await clock.advance(0.5)
                await until(lambda: bool(clock.sleepers))

            await has_rested(healthy, 1)

    async def test_a_disk_that_takes_nothing_delays_a_wake_up(self) -> None:
        """Nothing is lost: the moment stays due until the store takes it."""
        clock = ManualClock()
        async with opened("sqlite://", clock) as engine:
            conversation = await engine.create(every=10, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=10))
            async with full_disk(engine):
                await clock.advance(10)
                await asleep(clock, NOON + timedelta(seconds=11))
                assert conversation.next_wake == NOON + timedelta(seconds=10)

            await clock.advance(1)
            await has_rested(conversation, 1)

            assert await tasks_of(conversation) == ["Look around."]

    async def test_a_store_that_cannot_be_asked_is_asked_again(self, database_file: Path) -> None:
        """After a wait; meanwhile the engine works."""
        clock, store = ManualClock(), await open_store(database_file)
        broken = BrokenLists(store)
        try:
            async with Engine.open(store=broken, model=FunctionLlm(woken), clock=clock) as engine:
                conversation = await engine.create(every=10, task="Look around.")
                await asleep(clock, NOON + timedelta(seconds=1))
                await clock.advance(1)
                await asleep(clock, NOON + timedelta(seconds=3))
                assert broken.asked >= 2
                assert (await conversation.send("Hello")).status == "completed"

                broken.failures = 0
                await clock.advance(9)
                await has_rested(conversation, 2)
        finally:
            await store.close()

    async def test_a_conversation_that_does_not_answer_is_left_for_later(
        self, database_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its wake-up is given up after a bounded time, so that the others go on."""
        async with opened(database_file, ManualClock()) as engine:
            stuck = await engine.create(every=10, task="Look around.")
            healthy = await engine.create(every=2 * HOUR, task="Look around.")

        late, store = ManualClock(NOON + HOUR), await open_store(database_file)
        try:
            hanging = HangingLoads(store, stuck.id)
            with monkeypatch.context() as impatient:
                impatient.setattr(wake_ups, "REQUEST_TIMEOUT", 0.01)
                engine = await Engine.open(store=hanging, model=FunctionLlm(woken), clock=late)
                await until(lambda: late.sleepers != ())
            async with engine:
                assert hanging.hung.is_set()
                await late.advance_to(NOON + 2 * HOUR)
                await has_rested(await engine.get(healthy.id), 1)
                hanging.released.set()
        finally:
            await store.close()


class Delegating:
    """A store that passes everything on to another one, but for what a subclass changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class BrokenLists(Delegating):
    """Its wake-ups cannot be read, `failures` times."""

    failures = 1_000
    asked = 0

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Raise an error, or ask the other store."""
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise StoreError("The disk is away.")
        return await self._store.scheduled(limit)


class ListsDeleted(Delegating):
    """One of the conversations that it lists was deleted since."""

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """List the conversation that is gone first."""
        return (("deleted", NOON), *await self._store.scheduled(limit))


class HangingLoads(Delegating):
    """One of its conversations is read only when the test says so."""

    def __init__(self, store: Store, conversation_id: str) -> None:
        super().__init__(store)
        self._hangs = conversation_id
        self.hung, self.released = asyncio.Event(), asyncio.Event()

    async def load(self, conversation_id: str) -> Any:
        """Wait, if it is that conversation."""
        if conversation_id == self._hangs:
            self.hung.set()
            await self.released.wait()
        return await self._store.load(conversation_id)


class TestOneTimer:
    """What is scheduled costs one timer, however much it is."""

    @pytest.mark.slow
    async def test_many_conversations_cost_one_task_and_one_sleep(self) -> None:
        """Nothing is kept in memory for each of them."""
        clock = ManualClock()
        async with opened("sqlite://", clock) as engine:
            await until(lambda: len(asyncio.all_tasks()) == 1)  # this test alone
            for number in range(100):
                await engine.create(every=1_000 + number, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=1_000))

            assert len(asyncio.all_tasks()) == 2
            assert len(clock.sleepers) == 1
            assert engine.waiting == ()

    async def test_an_engine_without_schedules_has_none(self) -> None:
        """Neither at first nor when the last schedule is gone."""
        clock = ManualClock()
        async with opened("sqlite://", clock) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await until(lambda: len(asyncio.all_tasks()) == 1)  # this test alone

            await conversation.set_schedule(every=10, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=10))
            await conversation.set_schedule()
            await clock.advance(10)
            await until(lambda: clock.sleepers == ())
            await until(lambda: len(asyncio.all_tasks()) == 1)

    async def test_it_ends_with_the_engine(self) -> None:
        """Closing leaves nothing behind."""
        clock = ManualClock()
        before = len(asyncio.all_tasks())
        async with opened("sqlite://", clock) as engine:
            await engine.create(every=10, task="Look around.")
            await asleep(clock, NOON + timedelta(seconds=10))

        assert clock.sleepers == ()
        assert len(asyncio.all_tasks()) == before

    async def test_a_long_sleep_is_cut_into_short_ones(self) -> None:
        """A computer that slept meanwhile, or whose clock was set, is at most a minute late."""
        clock = ManualClock()
        async with opened("sqlite://", clock) as engine:
            await engine.create(cron="0 0 1 1 *", task="Happy new year.")
            await asleep(clock, NOON + timedelta(seconds=60))

            assert clock.sleepers == (NOON + timedelta(seconds=60),)


async def test_moments_are_in_utc() -> None:
    """Whatever the zone of the schedule."""
    async with opened("sqlite://", ManualClock()) as engine:
        conversation = await engine.create(cron="0 9 * * *", zone="Asia/Tokyo", task="Look around.")

        assert conversation.next_wake == datetime(2026, 6, 2, 0, tzinfo=UTC)
