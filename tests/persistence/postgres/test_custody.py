"""Who looks after a conversation, seen from two processes: two stores over one database, each with connections of its
own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pytest

from turnwise.persistence.errors import CustodyLost, StorageFailed, StoreConflict
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.ports import Taken
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.persistence.sql.statements import Driver
from turnwise.states.errors import UnknownConversation
from turnwise.states.events import DetailsChanged
from turnwise.states.step import LogEntry
from turnwise.testing.store_contract import Story, deliveries_of, plain

from ...support.postgres.fixtures import Databases
from ...support.postgres.proxy import LossyProxy
from .test_store import opened

T = TypeVar("T")


class Called:
    """Notes who was called for; what it notes in a transaction that fails does not count for a real one."""

    expression = None

    def __init__(self) -> None:
        self.now: list[str] = []
        self.later: list[tuple[str, datetime]] = []
        self.first: Callable[[Driver], Any] | None = None
        """What is done once within a transaction that calls."""

    def call(self, driver: Driver, conversation_id: str) -> None:
        """Note it."""
        self._begin(driver)
        self.now.append(conversation_id)

    def call_at(self, driver: Driver, conversation_id: str, due: datetime) -> None:
        """Note it, with the moment."""
        self._begin(driver)
        self.later.append((conversation_id, due))

    def _begin(self, driver: Driver) -> None:
        if self.first is not None:
            first, self.first = self.first, None
            first(driver)


@pytest.fixture
async def processes(postgres_url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes that share a database."""
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        yield one, other


Processes = tuple[PostgresStore, PostgresStore]


async def log_of(store: PostgresStore, name: str) -> list[LogEntry]:
    """Read a whole log, without what the store adds to its entries."""
    return plain(await store.entries(name))


async def take(store: PostgresStore, holder: str = "me") -> Taken:
    """Take the conversation."""
    taken = await store.take("story", holder)
    assert taken is not None
    return taken


class TestTaking:
    """`take`, `confirm`, `let_go`."""

    async def test_the_first_custody_finds_nothing_left(self, processes: Processes) -> None:
        """It says where the log ends."""
        store, _ = processes
        await Story().turn().into(store)

        assert await take(store) == Taken("story", 1, "me", 5, was_left=False, has_deliveries=False)

    async def test_there_is_no_custody_of_what_is_not_stored(self, processes: Processes) -> None:
        """None, and no error: it may have been deleted since it was called for."""
        store, other = processes
        await Story().into(store)
        taken = await take(store)
        await other.delete("story")

        assert await store.take("story", "another") is None
        assert not await store.confirm(taken)
        await store.let_go(taken, at_rest=True)

    async def test_a_deliverable_text_is_seen(self, processes: Processes) -> None:
        """It need not be read where there is none."""
        store, _ = processes
        story = Story().say().answer()
        log = await Story().say().into(store)
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))

        assert (await take(store)).has_deliveries

    async def test_one_that_was_not_let_go_is_left(self, processes: Processes) -> None:
        """The process of the first died, or stands still. The fence has grown."""
        store, other = processes
        await Story().into(store)
        first = await take(store, "first")

        second = await take(other, "second")

        assert second.was_left
        assert second.fence > first.fence
        assert [await store.confirm(first), await other.confirm(second)] == [False, True]

    async def test_one_that_was_let_go_at_rest_is_not_left(self, processes: Processes) -> None:
        """Otherwise every turn would begin as if a process had died."""
        store, other = processes
        await Story().into(store)
        await store.let_go(await take(store, "first"), at_rest=True)

        assert not (await take(other, "second")).was_left

    async def test_one_that_was_let_go_in_the_middle_is_left(self, processes: Processes) -> None:
        """What it had begun is for the next one."""
        store, other = processes
        await Story().say().into(store)
        await store.let_go(await take(store, "first"), at_rest=False)

        assert (await take(other, "second")).was_left

    @pytest.mark.parametrize("is_left", [False, True])
    async def test_taking_may_be_repeated(self, processes: Processes, is_left: bool) -> None:
        """Whether the first attempt was stored or not: it is the same custody, and says the same."""
        store, other = processes
        await Story().into(store)
        if is_left:
            await take(other, "before")

        first = await take(store)
        again = await take(store)

        assert first == again
        assert first.was_left is is_left
        assert await store.confirm(first)

    async def test_an_old_custody_lets_go_of_nothing(self, processes: Processes) -> None:
        """Neither at rest nor in the middle: the newer one stays, and nobody is called for."""
        store, other = processes
        store.calls = called = Called()
        await Story().into(store)
        old = await take(store, "old")
        new = await take(other, "new")

        for at_rest in (True, False):
            await store.let_go(old, at_rest=at_rest)

        assert await other.confirm(new)
        assert called.now == []
        assert (await take(store, "third")).was_left

    async def test_letting_go_may_be_repeated(self, processes: Processes) -> None:
        """It may have been stored before it failed."""
        store, _ = processes
        await Story().into(store)
        taken = await take(store)

        await store.let_go(taken, at_rest=True)
        await store.let_go(taken, at_rest=True)

        assert not await store.confirm(taken)
        assert not (await take(store, "next")).was_left

    async def test_many_take_at_once(self, processes: Processes) -> None:
        """Each custody has a fence of its own, and the one with the largest is the custody."""
        await Story().into(processes[0])

        taken = await asyncio.gather(*(take(processes[number % 2], f"process {number}") for number in range(12)))

        assert sorted(one.fence for one in taken) == list(range(1, 13))
        newest = max(taken, key=lambda one: one.fence)
        assert [one for one in taken if await processes[0].confirm(one)] == [newest]


class TestAppendingWithCustody:
    """A step is stored with the fence of the custody, or without one."""

    async def test_the_step_of_a_woken_process_is_not_stored(self, processes: Processes) -> None:
        """Its custody was taken while it stood still. The other one goes on from where it was."""
        story = Story().say()
        zombie, other = processes
        log = await story.into(zombie)
        await take(zombie, "zombie")
        await take(other, "other")
        others = (await other.load("story")).log

        with pytest.raises(CustodyLost):
            await log.append(*Story().say().answer("too late").newest)
        await others.append(*story.answer().newest)

        assert [entry.seq for entry in await other.entries("story")] == [1, 2, 3]
        assert (await other.load("story")).state == story.state
        with pytest.raises(CustodyLost):
            await log.append(*Story().say().answer("too late").newest)

    async def test_who_has_no_custody_appends_as_well(self, processes: Processes) -> None:
        """A process that takes requests stores them whoever has the custody; that one catches up."""
        story = Story()
        holder, web = processes
        held = await story.into(holder)
        await take(holder)
        log = (await web.load("story")).log

        await log.append(*story.say().newest)
        with pytest.raises(StoreConflict) as conflict:
            await held.append(*Story().say("at the same time").newest)

        assert type(conflict.value) is StoreConflict
        await held.catch_up()
        await held.append(*story.answer().newest)

    async def test_a_custody_that_was_let_go_is_not_compared(self, processes: Processes) -> None:
        """From then on the process appends like any other, also if letting go has failed."""
        story = Story()
        store, other = processes
        log = await story.into(store)
        await store.let_go(await take(store, "first"), at_rest=True)
        await take(other, "second")

        await log.append(*story.say().newest)

        assert (await other.load("story")).log.seq == 2

    async def test_a_deleted_conversation_is_a_conflict(self, processes: Processes) -> None:
        """There is no custody that could be lost."""
        store, other = processes
        log = await Story().into(store)
        await take(store)
        await other.delete("story")

        with pytest.raises(StoreConflict) as conflict:
            await log.append(*Story().say().newest)

        assert type(conflict.value) is StoreConflict
        with pytest.raises(UnknownConversation):
            await log.catch_up()

    async def test_two_processes_race(self, processes: Processes) -> None:
        """Of equal steps and of different ones, one is stored each time."""
        logs = [await Story().into(processes[0])] + [(await store.load("story")).log for store in processes[1:] * 3]
        story = Story()
        for number in range(20):
            story.say(f"{number}") if number % 2 == 0 else story.answer(f"{number}")
            outcomes = await asyncio.gather(*(log.append(*story.newest) for log in logs), return_exceptions=True)

            assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict] * 3
            assert [len(await log.catch_up()) for log in logs] == [0 if outcome is None else 1 for outcome in outcomes]

        assert [entry.seq for entry in await processes[0].entries("story")] == list(range(1, 22))


class TestCalls:
    """Who is called for, within the transactions that leave work to do."""

    @pytest.fixture
    def called(self, processes: Processes) -> Called:
        """What the first process calls for."""
        processes[0].calls = called = Called()
        return called

    async def test_a_step_that_begins_work_calls(self, processes: Processes, called: Called) -> None:
        """The first that does so; while the conversation waits, somebody is called for already."""
        story = Story()
        log = await story.into(processes[0])
        assert called.now == []

        await log.append(*story.say().newest)
        await log.append(*story.request(DetailsChanged, title="Dinner").newest)

        assert called.now == ["story"]

    async def test_the_holder_calls_for_nobody(self, processes: Processes, called: Called) -> None:
        """It goes on itself."""
        story = Story()
        log = await story.into(processes[0])
        await take(processes[0])

        await log.append(*story.say().newest)
        await log.append(*story.answer().newest, deliveries_of(story.newest[1], "screen"))

        assert (called.now, called.later) == ([], [])

    async def test_a_delivery_is_called_for(self, processes: Processes, called: Called) -> None:
        """Somebody must make it."""
        story = Story().say()
        log = await story.into(processes[0])
        called.now.clear()

        await log.append(*story.answer().newest, deliveries_of(story.newest[1], "screen"))

        assert called.now == ["story"]

    async def test_a_step_in_conflict_calls_for_nobody(self, processes: Processes, called: Called) -> None:
        """Only what is stored counts."""
        story = Story()
        log = await story.into(processes[0])
        await (await processes[1].load("story")).log.append(*story.say().newest)

        with pytest.raises(StoreConflict):
            await log.append(*Story().say("another").newest)

        assert called.now == []

    async def test_work_that_another_process_has_ended_is_not_taken_for_open(
        self, processes: Processes, called: Called
    ) -> None:
        """A log that has caught up knows whether its conversation waits."""
        story = Story().say()
        log = await story.into(processes[0])
        called.now.clear()
        await (await processes[1].load("story")).log.append(*story.answer().newest)
        await log.catch_up()

        await log.append(*story.say("And tomorrow?").newest)

        assert called.now == ["story"]

    async def test_a_delivery_that_is_left_is_called_for_when_it_is_due(
        self, processes: Processes, called: Called
    ) -> None:
        """By who lets go at rest; receipts that were noted before count. What was due before cannot be sent there."""
        due = datetime.now(UTC) + timedelta(hours=1)
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper", "radio", "gone")
        log = await Story().say().into(processes[0])
        taken = await take(processes[0])
        await log.append(*story.newest, said)
        called.now.clear()
        log.acknowledge(*said[0])
        log.postpone(*said[1], 1, due + timedelta(hours=1))
        log.postpone(*said[2], 2, due)
        log.postpone(*said[3], 3, due - timedelta(hours=2))

        await processes[0].let_go(taken, at_rest=True)

        assert (called.now, called.later) == ([], [("story", due)])

    async def test_what_is_let_go_in_the_middle_is_called_for(self, processes: Processes, called: Called) -> None:
        """At once."""
        await Story().say().into(processes[1])
        taken = await take(processes[0])

        await processes[0].let_go(taken, at_rest=False)

        assert called.now == ["story"]

    async def test_what_is_stored_as_it_is_calls(self, processes: Processes, called: Called) -> None:
        """A copy of a conversation that waits, and one with a delivery; not one at rest."""
        story = Story().say().answer()
        log = await Story().say().into(processes[1], "busy")
        await story.into(processes[1], "idle")
        busy, idle = await processes[1].read_record("busy"), await processes[1].read_record("idle")
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))
        sending = await processes[1].read_record("busy")

        await processes[0].write_records([busy._replace(id="a"), idle._replace(id="b"), sending._replace(id="c")])

        assert called.now == ["a", "c"]


class TestMoved:
    """`find_moved`."""

    async def test_what_has_moved_is_found(self, processes: Processes) -> None:
        """Further than what is known, back, or gone; what has not moved is left out."""
        store, _ = processes
        for name in ("a", "b", "c"):
            await Story().turn().into(store, name)

        assert await store.find_moved({"a": 5, "b": 3, "c": 9, "gone": 4}) == {"b": 5, "c": 5, "gone": 0}
        assert await store.find_moved({}) == {}


def kill(driver: Driver) -> None:
    """End the session of a transaction from within it, as an administrator may."""
    driver.execute("SELECT pg_terminate_backend(pg_backend_pid())")


class TestLostConnections:
    """A connection breaks in the middle of a step, or when it is committed."""

    async def test_a_step_whose_session_is_killed_is_not_stored(self, processes: Processes) -> None:
        """The same step is stored when it is appended again, once."""
        store, other = processes
        store.calls = called = Called()
        story = Story()
        log = await story.into(store)
        called.first = kill

        with pytest.raises(StorageFailed):
            await log.append(*story.say().newest)
        assert (log.seq, len(await other.entries("story"))) == (1, 1)
        await log.append(*story.newest)

        assert (log.seq, len(await other.entries("story"))) == (2, 2)
        assert called.now == ["story"]

    async def test_a_custody_whose_session_is_killed_is_taken_again(self, processes: Processes) -> None:
        """And given up again."""
        store, _ = processes
        store.calls = called = Called()
        await Story().say().into(store)
        taken = await take(store)
        called.first = kill

        with pytest.raises(StorageFailed):
            await store.let_go(taken, at_rest=False)
        await store.let_go(taken, at_rest=False)

        assert called.now == ["story", "story"]

    @pytest.mark.parametrize(("is_held", "lost"), [(False, b"COMMIT"), (False, b""), (True, b"")])
    async def test_a_step_whose_commit_is_in_doubt_is_found_again(
        self, postgres_url: str, is_held: bool, lost: bytes
    ) -> None:
        """The server has stored it, and its answer was lost: that to a COMMIT, or that to the one statement that most
        steps need. It is not stored twice, and the log goes on."""
        story = Story().say()
        async with through_proxy(postgres_url) as (store, proxy):
            log = await story.into(store)
            if is_held:
                await take(store)
            said = () if is_held else deliveries_of(story.answer().newest[1], "screen")
            step = story.newest if said else story.answer().newest
            if lost:
                store.calls = Called()
            proxy.loses = lost
            with pytest.raises(StorageFailed):
                await log.append(*step, said)
            proxy.loses = None
            assert proxy.lost > 0
            assert log.seq == 2

            await log.append(*step, said)
            await log.append(*story.say("And tomorrow?").newest)

            assert [entry.seq for entry in await store.entries("story")] == [1, 2, 3, 4]
            assert [one.target for one in await store.outbox(["story"])] == (["screen"] if said else [])

    async def test_a_custody_whose_commit_is_in_doubt_is_the_same(self, postgres_url: str) -> None:
        """Taken again, it has the same fence, and still says that another process had left the conversation."""
        async with through_proxy(postgres_url) as (store, proxy), opened(postgres_url) as other:
            await Story().say().into(store)
            before = await take(other, "before")
            proxy.loses = b""
            with pytest.raises(StorageFailed):
                await take(store)
            proxy.loses = None

            taken = await take(store)

            assert (taken.fence, taken.was_left) == (before.fence + 1, True)

    async def test_a_position_stays_where_its_caller_is_when_reading_breaks(self, postgres_url: str) -> None:
        """Steps that nobody has received are read again."""
        story = Story()
        async with through_proxy(postgres_url) as (store, proxy), opened(postgres_url) as other:
            log = await story.into(store)
            await (await other.load("story")).log.append(*story.say().newest)
            proxy.loses = b""
            with pytest.raises(StorageFailed):
                await log.catch_up()
            proxy.loses = None

            assert [entry.seq for entry in await log.catch_up()] == [2]

    async def test_sessions_that_ended_while_nobody_used_them_are_replaced(
        self, postgres_url: str, postgres_databases: Databases
    ) -> None:
        """As after a restart of the server: nobody hears of it, and no step is in doubt."""
        story = Story().say()
        async with opened(postgres_url) as store:
            log = await story.into(store)
            taken = await take(store)
            await asyncio.gather(*(store.load("story") for _ in range(8)))
            name = postgres_databases.name_of(postgres_url)
            ended = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
            postgres_databases.execute(ended)

            await log.append(*story.answer().newest)
            postgres_databases.execute(ended)
            assert await store.confirm(taken)
            postgres_databases.execute(ended)
            assert (await store.load("story")).state == story.state


@pytest.mark.faults
class TestManyLostConnections:
    """Sessions end at random instants, while several conversations go on in two processes."""

    async def test_no_step_is_lost_or_doubled(
        self, postgres_url: str, processes: Processes, postgres_databases: Databases
    ) -> None:
        """Whoever appends tries again until the step is stored; deliveries are acknowledged as they go."""
        name = postgres_databases.name_of(postgres_url)
        a_session = f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}' ORDER BY random() LIMIT 1"
        names = [f"story {number}" for number in range(6)]
        for each in names:
            await Story().into(processes[0], each)
        talking = [asyncio.ensure_future(self._talk(processes[n % 2], each)) for n, each in enumerate(names)]
        for _ in range(50):
            postgres_databases.execute(f"SELECT pg_terminate_backend(pid) FROM ({a_session}) AS session")
            await asyncio.sleep(0.02)
        stories = await asyncio.gather(*talking)

        for each, story in zip(names, stories, strict=True):
            assert await until_done(partial(log_of, processes[1], each)) == story.log
        assert await until_done(partial(processes[0].outbox, names)) == ()
        assert (await until_done(partial(examine, processes[0]))).findings == ()

    async def _talk(self, store: PostgresStore, name: str) -> Story:
        story, log = Story(), (await until_done(partial(store.load, name))).log
        taken = await until_done(partial(store.take, name, "me"))
        assert taken is not None
        for number in range(15):
            await until_done(partial(log.append, *story.say(f"{number}?").newest))
            said = deliveries_of(story.answer(f"{number}.").newest[1], "screen")
            await until_done(partial(log.append, *story.newest, said))
            log.acknowledge(*said[0])
        await until_done(partial(store.let_go, taken, at_rest=True))
        return story


async def until_done(work: Callable[[], Awaitable[T]]) -> T:
    """Try until the server takes it."""
    while True:
        try:
            return await work()
        except StorageFailed:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def through_proxy(url: str) -> AsyncIterator[tuple[PostgresStore, LossyProxy]]:
    """A store that reaches its server through a proxy."""
    async with LossyProxy(url) as proxy, opened(proxy.proxied) as store:
        yield store, proxy


class TestCancelledCallers:
    """A caller that stops waiting."""

    async def test_steps_of_cancelled_callers_are_stored_in_order(self, processes: Processes) -> None:
        """Each waits for the one before it, whoever still waits for them."""
        store, _ = processes
        log = await Story().into(store)
        story = Story()
        callers = []
        for number in range(10):
            story.say(f"{number}") if number % 2 == 0 else story.answer(f"{number}")
            callers.append(asyncio.ensure_future(log.append(*story.newest)))
            await asyncio.sleep(0)
            if number % 3:
                callers[-1].cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await store.close()

        assert log.seq == 11

    async def test_a_caller_that_is_cancelled_while_it_catches_up_has_not_moved_on(self, processes: Processes) -> None:
        """Whoever catches up next receives the steps."""
        story = Story()
        log = await story.into(processes[0])
        await (await processes[1].load("story")).log.append(*story.say().newest)
        catching_up = asyncio.ensure_future(log.catch_up())
        await asyncio.sleep(0)
        catching_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await catching_up

        assert log.seq == 1
        assert [entry.seq for entry in await log.catch_up()] == [2]


class TestRaces:
    """Transactions that need the same conversation."""

    async def test_a_parent_is_stored_or_its_child_is_not(self, processes: Processes) -> None:
        """Whatever happens first, no child is left whose parent was gone when it was stored."""
        one, other = processes
        for number in range(10):
            await Story().into(one, f"parent {number}")
            child = Story(parent=f"parent {number}", works_for=f"parent {number}")
            outcomes = await asyncio.gather(
                one.create(f"child {number}", *child.opening),
                other.delete(f"parent {number}"),
                return_exceptions=True,
            )
            stored = set(await one.ids(f"child {number}"))
            assert outcomes[1] is None
            assert isinstance(outcomes[0], UnknownConversation) is (not stored), outcomes

    async def test_conversations_created_at_once_have_keys_of_their_own(self, processes: Processes) -> None:
        """And of two with one id, one is stored."""
        stores = processes * 10

        outcomes = await asyncio.gather(
            *(store.create(f"story {number // 2}", *Story().opening) for number, store in enumerate(stores)),
            return_exceptions=True,
        )

        assert sum(isinstance(outcome, StoreConflict) for outcome in outcomes) == 10
        assert sorted(await processes[0].ids()) == sorted(f"story {number}" for number in range(10))
