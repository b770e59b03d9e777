"""Jobs: whoever has work is looked after, by one process at a time, whatever becomes of processes and servers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.postgres import jobs
from turnwise.persistence.postgres.jobs import PostgresJobs
from turnwise.persistence.postgres.notices import channel_of
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.persistence.sql.statements import Driver
from turnwise.states.errors import StoreError
from turnwise.testing.store_contract import Story

from ...support.engine_scenarios import until
from ...support.postgres.fixtures import Databases
from .test_store import opened

LEASE = 2.0


class Worker:
    """A process that serves jobs. It looks after a conversation until `gate` is open, or does what `does` says.

    `runs` counts how often it has looked after each conversation, `now` are those that it looks after at this moment,
    and `together` is the most of them that there were at once.
    """

    everywhere: Counter[str]

    def __init__(self, store: PostgresStore, everywhere: Counter[str]) -> None:
        self.store = store
        self.database = store.database
        self.jobs = jobs_of(store)
        self.everywhere = everywhere
        """How many processes look after each conversation at this moment."""
        self.runs = Counter[str]()
        self.now = set[str]()
        self.together = 0
        self.twice = list[str]()
        self.gate = asyncio.Event()
        self.gate.set()
        self.does: Callable[[str], Awaitable[None]] | None = None
        self.serving: asyncio.Task[None]
        self.listening: asyncio.Task[None]

    async def look_after(self, conversation_id: str) -> None:
        """Look after a conversation, as the engine does."""
        self.everywhere[conversation_id] += 1
        if self.everywhere[conversation_id] > 1:
            self.twice.append(conversation_id)
        self.now.add(conversation_id)
        self.together = max(self.together, len(self.now))
        try:
            await self.gate.wait()
            if self.does is not None:
                await self.does(conversation_id)
        finally:
            self.now.discard(conversation_id)
            self.everywhere[conversation_id] -= 1
        self.runs[conversation_id] += 1

    def serve(self, slots: int = 20, lease: float = LEASE) -> None:
        """Serve from now on."""
        self.listening = asyncio.ensure_future(listen(self.store))
        self.serving = asyncio.ensure_future(self.jobs.serve(self.look_after, slots=slots, lease=lease))

    async def stop(self) -> None:
        """Serve no longer."""
        self.listening.cancel()
        self.serving.cancel()
        await asyncio.wait([self.serving, self.listening])
        if not self.serving.cancelled() and (error := self.serving.exception()) is not None:
            raise error


WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
LISTENING = (
    "SELECT FROM pg_stat_activity WHERE application_name = 'turnwise notices' AND datname = current_database() "
    "AND query LIKE 'LISTEN%'"
)


async def listen(store: PostgresStore) -> None:
    """Have a store hear what other processes tell, as an engine does, until this is cancelled."""
    async for _ in store.notices():
        pass


def jobs_of(store: PostgresStore) -> PostgresJobs:
    """The jobs of a store."""
    assert isinstance(store.jobs, PostgresJobs)
    return store.jobs


@asynccontextmanager
async def serving(url: str, count: int = 1, **how: Any) -> AsyncIterator[list[Worker]]:
    """So many processes that serve the jobs of one database."""
    everywhere = Counter[str]()
    async with AsyncExitStack() as stack:
        workers = [Worker(await stack.enter_async_context(opened(url)), everywhere) for _ in range(count)]
        for worker in workers:
            worker.serve(**how)
        try:
            yield workers
        finally:
            for worker in workers:
                worker.gate.set()
            await asyncio.gather(*(worker.stop() for worker in workers))
    assert not [each for worker in workers for each in worker.twice], "no conversation is looked after twice at a time"


@contextmanager
def looking(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the test's own."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def statuses(url: str) -> list[str]:
    """The status of each job, oldest first."""
    with looking(url) as connection:
        return [
            status
            for (status,) in connection.execute("SELECT status::text FROM turnwise_jobs.procrastinate_jobs ORDER BY id")
        ]


def total(workers: list[Worker]) -> Counter[str]:
    """How often each conversation was looked after."""
    return sum((worker.runs for worker in workers), Counter[str]())


class TestCalls:
    """A call is a job that waits, once its transaction is committed."""

    async def test_a_call_waits_for_a_worker(self, postgres_url: str) -> None:
        """Also where none serves yet."""
        async with opened(postgres_url) as store:
            await store.jobs.call("dinner")
            assert statuses(postgres_url) == ["todo"]
            async with serving(postgres_url) as (worker,):
                await until(lambda: worker.runs["dinner"] == 1)
        assert statuses(postgres_url) == []

    async def test_a_transaction_that_fails_has_not_called(self, postgres_url: str) -> None:
        """The call belongs to the step: without it there is nothing to do."""
        async with opened(postgres_url) as store:

            def call(driver: Driver) -> None:
                store.calls.call(driver, "dinner")
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await store.database.write(call)
        assert statuses(postgres_url) == []

    async def test_a_call_leaves_the_transaction_as_it_was(self, postgres_url: str) -> None:
        """Whether one waits already or not, what the transaction sees and may do does not change."""
        async with opened(postgres_url) as store:

            def call(driver: Driver) -> tuple[Any, ...]:
                before = driver.execute("SHOW search_path").fetchone()
                for _ in range(3):
                    store.calls.call(driver, "dinner")
                after = driver.execute("SHOW search_path").fetchone()
                return before, after, driver.execute("SELECT count(*) FROM conversations").fetchone()

            before, after, count = await store.database.write(call)
        assert (before, count) == (after, (0,))
        assert statuses(postgres_url) == ["todo"]

    async def test_one_waiting_call_is_enough(self, postgres_url: str) -> None:
        """Also if many processes call at once; none of them fails."""
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(3)]
            await asyncio.gather(*(store.jobs.call("dinner") for store in stores for _ in range(10)))
        assert statuses(postgres_url) == ["todo"]

    async def test_what_is_looked_after_is_called_for_again(self, postgres_url: str) -> None:
        """A late call must not be lost: whoever works may have read what there was to do before."""
        async with serving(postgres_url) as (worker,):
            worker.gate.clear()
            await worker.jobs.call("dinner")
            await until(lambda: "dinner" in worker.now)
            await asyncio.gather(*(worker.jobs.call("dinner") for _ in range(5)))
            assert statuses(postgres_url) == ["doing", "todo"]
            worker.gate.set()
            await until(lambda: worker.runs["dinner"] == 2)
            await until(lambda: statuses(postgres_url) == [])

    async def test_what_is_due_soon_is_called_for_at_once(self, postgres_url: str) -> None:
        """What is due later has no job: it is found when it is due."""
        async with opened(postgres_url) as store:
            now = datetime.now(UTC)
            for name, seconds in {"past": -5, "soon": 1, "later": 60}.items():
                due = now + timedelta(seconds=seconds)
                await store.database.write(lambda driver, name=name, due=due: store.calls.call_at(driver, name, due))
        with looking(postgres_url) as connection:
            locks = connection.execute("SELECT lock FROM turnwise_jobs.procrastinate_jobs ORDER BY id").fetchall()
        assert locks == [("past",), ("soon",)]

    async def test_an_id_may_hold_any_character(self, postgres_url: str) -> None:
        """It comes back as it was given."""
        name = "é\0\1'\"%s$$;\U0001f600"
        async with serving(postgres_url) as (worker,):
            await worker.jobs.call(name)
            await until(lambda: worker.runs[name] == 1)

    async def test_no_call_is_lost(self, postgres_url: str) -> None:
        """Steps are stored at random while workers come and go: whoever comes last sees all of them."""
        names = [f"c{number}" for number in range(8)]
        with looking(postgres_url) as connection:
            connection.execute("CREATE TABLE work (id text PRIMARY KEY, stored int DEFAULT 0, seen int DEFAULT 0)")
            connection.execute("INSERT INTO work (id) SELECT unnest(%s::text[])", (names,))

        async def look(worker: Worker, conversation_id: str) -> None:
            statement = "UPDATE work SET seen = stored WHERE id = %s"
            await worker.database.write(lambda driver: driver.execute(statement, (conversation_id,)))

        async def store_steps(worker: Worker, name: str) -> None:
            def step(driver: Driver) -> None:
                driver.execute("UPDATE work SET stored = stored + 1 WHERE id = %s", (name,))
                worker.jobs.tables.call(driver, name)

            for _ in range(40):
                await worker.database.write(step)

        async with serving(postgres_url, 3) as workers:
            for worker in workers:
                worker.does = lambda name, worker=worker: look(worker, name)
            await asyncio.gather(*(store_steps(workers[n % 3], name) for n, name in enumerate(names)))
            await until(lambda: not statuses(postgres_url))
        with looking(postgres_url) as connection:
            assert connection.execute("SELECT * FROM work WHERE seen <> stored OR stored <> 40").fetchall() == []


JOBS = "turnwise_jobs.procrastinate_jobs"


class TestEnding:
    """A job that is done waits for a moment, until the server is told that it has ended."""

    async def test_a_job_that_is_done_while_others_are_ended_ends_soon(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where the worker hears of nothing more."""
        monkeypatch.setattr(jobs, "LOOK", 3600.0)
        async with serving(postgres_url) as (worker,):
            gates = {"dinner": asyncio.Event(), "lunch": asyncio.Event()}

            async def wait(name: str) -> None:
                await gates[name].wait()

            worker.does = wait
            for name in gates:
                await worker.jobs.call(name)
            await until(lambda: worker.now == set(gates))
            await until(lambda: statuses(postgres_url) == ["doing", "doing"])
            with psycopg.connect(postgres_url) as blocking, looking(postgres_url) as connection:
                blocking.execute(f"SELECT FROM {JOBS} WHERE lock = 'dinner' FOR UPDATE")
                gates["dinner"].set()
                await until(lambda: connection.execute(WAITING).fetchone() is not None)
                gates["lunch"].set()
                await until(lambda: not worker.now)
            await until(lambda: statuses(postgres_url) == [])

    async def test_what_is_handed_on_to_the_worker_that_has_it_may_be_over_first(
        self, postgres_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Others have missed it while it stood still."""
        async with opened(postgres_url) as store:
            gate, one_at_a_time, begun = asyncio.Event(), asyncio.Lock(), list[str]()

            async def look_after(name: str) -> None:
                begun.append(name)
                async with one_at_a_time:
                    await gate.wait()
                    if len(begun) == 2:
                        begun.append("failed")
                        raise StorageFailed("The disk is full.")

            serving = asyncio.ensure_future(jobs_of(store).serve(look_after, slots=5, lease=LEASE))
            await store.jobs.call("dinner")
            await until(lambda: len(begun) == 1)
            with looking(postgres_url) as connection:
                connection.execute("SET search_path = turnwise_jobs; SELECT turnwise_call('dinner')")
                connection.execute(f"DELETE FROM {JOBS} WHERE status = 'doing'")
            await until(lambda: len(begun) == 2)
            serving.cancel()
            await asyncio.sleep(0.1)
            gate.set()
            async with asyncio.timeout(30):
                await asyncio.wait([serving])
        assert statuses(postgres_url) == ["todo"]
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    async def test_a_job_that_was_taken_late_is_found(self, postgres_url: str) -> None:
        """The server may have committed that when the worker had given up waiting, and had looked what it has."""
        async with serving(postgres_url) as (worker,):
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
            with looking(postgres_url) as connection:
                connection.execute(
                    f"INSERT INTO {JOBS} (queue_name, task_name, lock, queueing_lock, status, worker_id) "
                    "SELECT 'turnwise', 'turnwise.conversation', 'lunch', 'lunch', 'doing', id "
                    "FROM turnwise_jobs.procrastinate_workers"
                )
            await until(lambda: worker.runs["lunch"] == 1)
            await until(lambda: statuses(postgres_url) == [])


class TestServing:
    """Workers look after what was called for."""

    async def test_each_call_is_answered_once(self, postgres_url: str) -> None:
        """By one of the workers, and all of them have their share."""
        names = [f"c{number}" for number in range(200)]
        async with serving(postgres_url, 4, slots=5) as workers:
            for worker in workers:
                worker.does = lambda _: asyncio.sleep(0.01)
            for number, name in enumerate(names):
                await workers[number % 4].jobs.call(name)
            await until(lambda: len(total(workers)) == 200)
            await until(lambda: not statuses(postgres_url))
        assert total(workers) == Counter(names)
        assert all(0 < worker.together <= 5 for worker in workers)

    async def test_a_worker_that_ends_waits_for_what_it_has_in_hand(self, postgres_url: str) -> None:
        """It takes nothing new, however often it is cancelled."""
        async with serving(postgres_url) as (worker,):
            worker.gate.clear()
            await worker.jobs.call("dinner")
            await until(lambda: "dinner" in worker.now)
            for _ in range(3):
                worker.serving.cancel()
                await asyncio.sleep(0.01)
            await worker.jobs.call("lunch")
            await asyncio.sleep(0.2)
            assert not worker.serving.done()
            worker.gate.set()
            await asyncio.wait([worker.serving])
            assert worker.runs == {"dinner": 1}
        assert statuses(postgres_url) == ["todo"]

    async def test_what_could_not_be_looked_after_is_called_for_again(self, postgres_url: str) -> None:
        """Whatever the reason."""
        failures: list[Exception] = [StorageFailed("The disk is full."), ZeroDivisionError()]

        async def fail(_: str) -> None:
            if failures:
                raise failures.pop()

        async with serving(postgres_url) as (worker,):
            worker.does = fail
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
            await until(lambda: not statuses(postgres_url))
        assert failures == []

    async def test_its_heart_beats_although_all_connections_are_in_use(self, postgres_url: str) -> None:
        """And it goes on taking jobs."""
        async with serving(postgres_url, 2) as (busy, other):
            database = busy.database
            sleeping = [
                asyncio.ensure_future(database.read(lambda driver: driver.execute("SELECT pg_sleep(5)")))
                for _ in range(20)
            ]
            busy.gate.clear()
            other.gate.clear()
            count = 0
            while count < 10 or not busy.now:  # it has its share once the other one knows of it, or is full
                await other.jobs.call(f"c{count}")
                count += 1
                await asyncio.sleep(0.05)
            await until(lambda: len(busy.now | other.now) == count)
            mine = set(busy.now)
            await asyncio.sleep(2 * LEASE)
            busy.gate.set()
            other.gate.set()
            await until(lambda: not statuses(postgres_url))
            assert set(busy.runs) >= mine
            assert set(total([busy, other]).values()) == {1}
            for each in sleeping:
                each.cancel()

    async def test_anybody_may_send_it_notices(self, postgres_url: str) -> None:
        """It passes over what it does not understand."""
        async with serving(postgres_url) as (worker,):
            with looking(postgres_url) as connection:
                await until(lambda: connection.execute(LISTENING).fetchone() is not None)
                for payload in ('["x",["job"]]', '["x",["job",7]]', '["x",["job",null]]', '["x",["job","\\ud800",1]]'):
                    connection.execute("SELECT pg_notify(%s, %s)", (channel_of(None), payload))
                connection.execute("SELECT pg_notify(%s, %s)", (channel_of(None), '["x",["job","\\ud800"]]'))
                connection.execute("SELECT pg_notify(%s, %s)", (channel_of(None), '["x",["job","of nobody"]]'))
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
            await asyncio.sleep(0.2)
            assert not worker.serving.done()
            assert not worker.listening.done()

    async def test_each_conversation_has_a_worker_of_its_own(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Which takes it each time, because it has it in memory; whoever calls."""
        monkeypatch.setattr(jobs, "STAND_BY", 3600.0)
        names = [f"c{number}" for number in range(20)]
        rounds: list[list[frozenset[str]]] = []
        async with serving(postgres_url, 2) as workers, opened(postgres_url) as caller:
            while len(rounds) < 3 or not rounds[-3] == rounds[-2] == rounds[-1] or not all(rounds[-1]):
                for worker in workers:
                    worker.runs.clear()
                for name in names:
                    await caller.jobs.call(name)
                await until(lambda: total(workers) == Counter(names))
                rounds.append([frozenset(worker.runs) for worker in workers])

    async def test_the_defaults_of_the_database_are_not_its_own(self, postgres_url: str) -> None:
        """An administrator may have made them for people who look at it by hand."""
        with looking(postgres_url) as connection:
            for setting in ("default_transaction_read_only = on", "default_transaction_isolation = serializable"):
                connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {setting}")
        async with serving(postgres_url) as [worker]:
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)

    async def test_why_it_cannot_connect_is_logged(
        self, postgres_url: str, postgres_databases: Databases, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In the words of the server: whoever reads the log must know what to change."""
        async with opened(postgres_url) as store:
            postgres_databases.execute(f"ALTER DATABASE {Databases.name_of(postgres_url)} ALLOW_CONNECTIONS false")
            worker = Worker(store, Counter())
            worker.serve()
            await until(lambda: "No conversations can be taken" in caplog.text)
            await worker.stop()
        assert "is not currently accepting connections" in caplog.text

    async def test_a_clock_that_differs_is_logged(
        self, postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Once: what is due is performed by the clock of the process, so at the wrong moment."""
        right = time.time
        monkeypatch.setattr(jobs.time, "time", lambda: right() - 3600)
        async with serving(postgres_url, lease=1.0) as (worker,):
            await until(lambda: "The clock of this machine is " in caplog.text)
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
            await asyncio.sleep(0.5)  # another beat

        assert caplog.text.count("The clock of this machine is ") == 1
        assert "s behind that of the server" in caplog.text

    async def test_what_will_not_pass_is_raised(self, postgres_url: str) -> None:
        """Whoever serves learns that it gets nothing to look after."""
        async with opened(postgres_url) as store:
            worker = Worker(store, Counter())
            worker.serve()
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
            with looking(postgres_url) as connection:
                connection.execute("DROP SCHEMA turnwise_jobs CASCADE")
            with pytest.raises(StoreError, match=r"it lacks (tables|functions) of turnwise"):
                await worker.serving
            worker.listening.cancel()

    async def test_says_how_the_jobs_fare(self, postgres_url: str) -> None:
        """For whoever watches them."""
        async with opened(postgres_url) as store:
            await store.jobs.call("dinner")
            waiting = await jobs_of(store).health(lease=LEASE)
            async with serving(postgres_url, slots=1) as (worker,):
                worker.gate.clear()
                await until(lambda: bool(worker.now))
                running = await jobs_of(store).health(lease=LEASE)
        assert (waiting.waiting, waiting.running, waiting.workers) == (1, 0, 0)
        assert waiting.longest_wait is not None and waiting.longest_wait >= 0
        assert (running.waiting, running.running, running.stalled, running.workers) == (0, 1, 0, 1)
        assert running.longest_wait is None

    async def test_a_fetch_reads_few_rows_however_many_wait(self, postgres_url: str) -> None:
        """The server sorts no backlog, although it has no statistics of it."""
        async with serving(postgres_url, slots=1) as (worker,):
            worker.gate.clear()
            await worker.jobs.call("first")
            await until(lambda: bool(worker.now))
            with looking(postgres_url) as connection:
                connection.execute("SELECT turnwise_jobs.turnwise_call('c' || n) FROM generate_series(1, 2000) AS n")
            worker.gate.set()
            await until(lambda: len(worker.runs) > 20)
            await worker.stop()
        done = len(worker.runs)
        with looking(postgres_url) as connection:
            connection.execute("SELECT pg_stat_clear_snapshot()")
            ((read,),) = connection.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_all_tables WHERE relname = 'procrastinate_jobs'"
            ).fetchall()
        assert read < 2000 * 10 + done * 60


async def stored(store: PostgresStore, name: str, story: Story | None = None) -> None:
    """Store a conversation, and forget the calls for it."""
    await (story or Story()).into(store, name)
    await store.database.write(lambda driver: driver.execute("TRUNCATE turnwise_jobs.procrastinate_jobs CASCADE"))


async def change(store: PostgresStore, statement: str, **ages: float) -> None:
    """Execute a statement, with moments that lie so many seconds back."""
    now = datetime.now(UTC).timestamp()
    given = {name: int((now - age) * 1e6) for name, age in ages.items()}
    await store.database.write(lambda driver: driver.execute(statement % given))


class TestJobsOfNobody:
    """A job that runs, as the database says, although no worker has it."""

    async def test_is_called_for_again_at_once(self, postgres_url: str) -> None:
        """Nobody is given a lease of time, because there is nobody who could use it."""
        async with opened(postgres_url) as store:
            await store.jobs.call("dinner")
        with looking(postgres_url) as connection:
            connection.execute("SET search_path = turnwise_jobs")
            connection.execute("UPDATE procrastinate_jobs SET status = 'doing'")

        async with serving(postgres_url, lease=3600.0) as (worker,):
            await until(lambda: worker.runs["dinner"] == 1)
            await until(lambda: statuses(postgres_url) == [])

    async def test_is_not_left_by_a_worker_that_ends(self, postgres_url: str) -> None:
        """It calls again for what it has taken without hearing of it, before it is forgotten."""
        async with serving(postgres_url, slots=1) as (worker,):
            worker.gate.clear()
            await worker.jobs.call("dinner")
            await until(lambda: "dinner" in worker.now)
            await worker.jobs.call("lunch")
            with looking(postgres_url) as connection:
                connection.execute("SET search_path = turnwise_jobs")
                connection.execute(
                    "UPDATE procrastinate_jobs AS job SET status = 'doing', worker_id = other.worker_id "
                    "FROM procrastinate_jobs AS other WHERE job.lock = 'lunch' AND other.lock = 'dinner'"
                )
            worker.serving.cancel()
            worker.gate.set()
            await asyncio.wait([worker.serving])
            with looking(postgres_url) as connection:
                left = connection.execute("SELECT lock, status::text FROM turnwise_jobs.procrastinate_jobs").fetchall()
        assert left == [("lunch", "todo")]


class TestWhatIsDue:
    """What is due has no job, and nobody who looks after it: a worker looks, and calls."""

    @pytest.mark.parametrize("column", ["next_timer", "wakes_at"])
    async def test_a_timer_is_called_for_when_it_is_due(self, postgres_url: str, column: str) -> None:
        """And a wake-up; once, whoever looks, and not before."""
        async with opened(postgres_url) as store, serving(postgres_url, 3) as workers:
            await stored(store, "dinner")
            await stored(store, "later")
            await change(store, f"UPDATE conversations SET {column} = %(due)s WHERE id = 'dinner'", due=-1.5)
            await change(store, f"UPDATE conversations SET {column} = %(due)s WHERE id = 'later'", due=-600)
            assert not total(workers)
            await until(lambda: bool(total(workers)))
            await asyncio.sleep(2.5)
            assert total(workers) == {"dinner": 1}

    async def test_a_delivery_is_called_for_when_it_is_due(self, postgres_url: str) -> None:
        """It has failed, and is tried again."""
        async with opened(postgres_url) as store, serving(postgres_url) as (worker,):
            await stored(store, "dinner")
            await change(
                store,
                "INSERT INTO outbox (conversation, target, effect_id, seq, attempts, next_attempt) "
                "SELECT key, 'screen', 1, 1, 1, %(due)s FROM conversations",
                due=-1.5,
            )
            await until(lambda: worker.runs["dinner"] == 1)

    async def test_what_is_still_due_is_called_for_once_more(self, postgres_url: str) -> None:
        """Whoever looked after it had a clock that is a little behind, and did nothing."""
        async with opened(postgres_url) as store, serving(postgres_url, lease=60.0) as (worker,):
            await stored(store, "dinner")
            await change(store, "UPDATE conversations SET next_timer = %(due)s", due=-1.5)
            await until(lambda: worker.runs["dinner"] == 2)

    async def test_what_was_due_while_nobody_served_is_called_for(self, postgres_url: str) -> None:
        """However long ago."""
        async with opened(postgres_url) as store:
            await stored(store, "dinner")
            await change(store, "UPDATE conversations SET wakes_at = %(due)s", due=600)
            await change(store, "UPDATE turnwise_jobs.turnwise_looks SET looked_at = now() - interval '1 day'")
            async with serving(postgres_url) as (worker,):
                await until(lambda: worker.runs["dinner"] == 1)

    async def test_what_is_looked_after_is_not_called_for(self, postgres_url: str) -> None:
        """Whoever looks after it sees to its timer."""
        async with opened(postgres_url) as store, serving(postgres_url) as (worker,):
            await stored(store, "dinner")
            worker.gate.clear()
            await worker.jobs.call("dinner")
            await until(lambda: bool(worker.now))
            await change(store, "UPDATE conversations SET next_timer = %(due)s", due=-0.5)
            await asyncio.sleep(2.5)
            assert statuses(postgres_url) == ["doing"]

    async def test_what_has_not_moved_is_called_for_ever_more_rarely(self, postgres_url: str) -> None:
        """It waits for an answer, and has no job: something was lost. It is called for at two leases, four, eight…"""
        lease = 60.0  # so that it does not matter how long the test takes
        async with opened(postgres_url) as store:
            for leases in range(1, 40, 2):
                await stored(store, f"c{leases}", Story().say())
                at = (leases + 0.05) * lease
                await change(store, f"UPDATE conversations SET updated_at = %(at)s WHERE id = 'c{leases}'", at=at)
            await change(store, "UPDATE turnwise_jobs.turnwise_looks SET swept_at = now() - interval '150 s'")
            async with serving(postgres_url, lease=lease) as (worker,):
                await until(lambda: len(worker.runs) >= 5)
                await until(lambda: not statuses(postgres_url))
                assert set(worker.runs) == {"c3", "c5", "c9", "c17", "c33"}

    async def test_one_that_rests_is_left_alone(self, postgres_url: str) -> None:
        """It has nothing to do."""
        async with opened(postgres_url) as store:
            await stored(store, "dinner", Story().turn())
            await stored(store, "lunch", Story().say())
            await change(store, "UPDATE conversations SET updated_at = %(at)s", at=4.1 * LEASE)
            await change(store, "UPDATE turnwise_jobs.turnwise_looks SET swept_at = now() - interval '5 s'")
            async with serving(postgres_url) as (worker,):
                await until(lambda: bool(worker.runs))
                assert worker.runs == {"lunch": 1}
