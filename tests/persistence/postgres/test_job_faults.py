"""What becomes of jobs when processes die or stand still, connections break, and servers are restarted."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from turnwise.testing.postgres_server import PostgresServer, ShutdownMode

from ...support.engine_scenarios import until
from ...support.postgres.job_worker import LEDGER
from ...support.postgres.pooler import pooler
from .test_jobs import LEASE, jobs_of, looking, serving, statuses, total
from .test_store import opened

ROOT = Path(__file__).parents[3]

PROCESS_LEASE = 4.0
"""Seconds: processes that share a busy machine must not count as dead."""


class Processes:
    """Processes that serve jobs; see `job_worker`."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._stack = stack
        self._connection = stack.enter_context(looking(url))
        self._connection.execute(LEDGER)

    async def start(self, name: str) -> Process:
        """Start a process, and return when it is about to serve."""
        command = (sys.executable, "-m", "tests.support.postgres.job_worker", self.url, name, str(PROCESS_LEASE))
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
        self._stack.push_async_callback(_ended, process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return process

    def ledger(self) -> list[tuple[str, str, str]]:
        """Who has begun and ended to look after what, in order."""
        rows = self._connection.execute("SELECT worker, conversation, what FROM ledger ORDER BY number").fetchall()
        return [(worker, conversation, what) for worker, conversation, what in rows]

    def close_gates(self, *gates: str) -> None:
        """Have whoever looks after these conversations not end it, or one process: `process/conversation`."""
        self._connection.execute("INSERT INTO gates SELECT unnest(%s::text[])", (list(gates),))

    def open_gates(self, *gates: str) -> None:
        """Have it end."""
        self._connection.execute("DELETE FROM gates WHERE gate = ANY(%s)", (list(gates),))


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    await process.communicate()


@pytest.fixture
async def processes(postgres_url: str) -> AsyncIterator[Processes]:
    """Processes that end with the test."""
    async with AsyncExitStack() as stack:
        async with opened(postgres_url):
            pass  # makes the tables
        yield Processes(postgres_url, stack)


pytestmark = [pytest.mark.slow, pytest.mark.faults]


class TestProcesses:
    """A process that dies or stands still loses what it has in hand to another one."""

    async def test_what_a_killed_process_had_in_hand_is_called_for_again(self, processes: Processes) -> None:
        """All of it, once each."""
        names = [f"c{number}" for number in range(10)]
        async with opened(processes.url) as store:
            processes.close_gates(*names)
            first = await processes.start("first")
            for name in names:
                await store.jobs.call(name)
            await until(lambda: len(processes.ledger()) == 10)
            await processes.start("second")
            first.kill()
            await until(lambda: len(processes.ledger()) == 20)
            processes.open_gates(*names)
            await until(lambda: not statuses(processes.url))
        begun = Counter((worker, what) for worker, _, what in processes.ledger())
        assert begun == {("first", "begins"): 10, ("second", "begins"): 10, ("second", "ends"): 10}

    async def test_a_process_that_stood_still_ends_only_its_own_job(self, processes: Processes) -> None:
        """It wakes while another one looks after its conversation, and believes that it has ended it: a third one must
        not begin."""
        async with opened(processes.url) as store:
            processes.close_gates("dinner")
            first = await processes.start("first")
            await store.jobs.call("dinner")
            await until(lambda: processes.ledger() == [("first", "dinner", "begins")])
            first.send_signal(signal.SIGSTOP)
            await processes.start("second")
            await until(lambda: ("second", "dinner", "begins") in processes.ledger())
            processes.close_gates("second/dinner")
            processes.open_gates("dinner")
            await store.jobs.call("dinner")
            first.send_signal(signal.SIGCONT)
            await until(lambda: ("first", "dinner", "ends") in processes.ledger())
            await asyncio.sleep(PROCESS_LEASE)
            assert statuses(processes.url) == ["doing", "todo"], processes.ledger()
            assert len(processes.ledger()) == 3
            processes.open_gates("second/dinner")
            await until(lambda: not statuses(processes.url))
        assert [what for _, _, what in processes.ledger()] == ["begins", "begins", "ends", "ends", "begins", "ends"]

    async def test_the_last_process_of_all_is_missed_by_the_next_one(self, processes: Processes) -> None:
        """Also if nobody was there when it died."""
        async with opened(processes.url) as store:
            processes.close_gates("dinner")
            first = await processes.start("first")
            await store.jobs.call("dinner")
            await until(lambda: len(processes.ledger()) == 1)
            first.kill()
            await first.wait()
            processes.open_gates("dinner")
            await processes.start("second")
            await until(lambda: ("second", "dinner", "ends") in processes.ledger())
            await until(lambda: not statuses(processes.url))

    async def test_whatever_is_killed_every_call_is_answered(self, processes: Processes) -> None:
        """Four processes, of which one after the other is killed and replaced, and 200 conversations."""
        names = [f"c{number}" for number in range(200)]
        running = {f"p{number}": await processes.start(f"p{number}") for number in range(4)}
        killed = set()
        async with opened(processes.url) as store:
            for number, name in enumerate(names):
                await store.jobs.call(name)
                if number % 40 == 20:
                    killed.add(victim := min(running))
                    running.pop(victim).kill()
                    running[f"q{number}"] = await processes.start(f"q{number}")
            await until(lambda: not statuses(processes.url))
        ended = Counter(conversation for _, conversation, what in processes.ledger() if what == "ends")
        assert set(ended) == set(names)
        assert _together(processes.ledger(), killed) == set()


def _together(ledger: list[tuple[str, str, str]], killed: set[str]) -> set[str]:
    """The conversations that two processes have looked after at once, neither of which was killed."""
    now: dict[str, str] = {}
    found = set()
    for worker, conversation, what in ledger:
        if what == "begins":
            if conversation in now and now[conversation] not in killed:
                found.add(conversation)
            now[conversation] = worker
        elif now.get(conversation) == worker:
            del now[conversation]
    return found


class TestServers:
    """A server that was away is no death of a worker: it goes on with what it has in hand."""

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    async def test_a_restart_loses_and_doubles_nothing(self, own_postgres: PostgresServer, mode: ShutdownMode) -> None:
        """What runs goes on, and ends its job when the server is back; nobody takes it over."""
        url = own_postgres.url("postgres")
        async with serving(url, 2) as workers:
            for worker in workers:
                worker.gate.clear()
            for number in range(20):
                await workers[0].jobs.call(f"c{number}")
            await until(lambda: sum(len(worker.now) for worker in workers) == 20)
            await asyncio.to_thread(own_postgres.shut_down, mode)
            await asyncio.sleep(1.5 * LEASE)  # by then all hearts seem to stand still
            for worker in workers:
                worker.gate.set()
            await until(lambda: sum(total(workers).values()) == 20)
            await asyncio.to_thread(own_postgres.resume)
            await until(lambda: not statuses(url))
            await workers[1].jobs.call("afterwards")
            await until(lambda: total(workers)["afterwards"] == 1)
            await asyncio.sleep(1.5 * LEASE)
            assert set(total(workers).values()) == {1}

    async def test_what_runs_during_an_outage_is_not_taken_over(self, own_postgres: PostgresServer) -> None:
        """All workers get a lease of time to show that they live."""
        url = own_postgres.url("postgres")
        async with serving(url, 3) as workers:
            for worker in workers:
                worker.gate.clear()
            for number in range(20):
                await workers[0].jobs.call(f"c{number}")
            await until(lambda: sum(len(worker.now) for worker in workers) == 20)
            await asyncio.to_thread(own_postgres.shut_down, "immediate")
            await asyncio.sleep(2 * LEASE)
            await asyncio.to_thread(own_postgres.resume)
            await asyncio.sleep(2 * LEASE)
            assert sum(len(worker.now) for worker in workers) == 20
            for worker in workers:
                worker.gate.set()
            await until(lambda: not statuses(url))
            assert set(total(workers).values()) == {1}

    async def test_connections_that_are_ended_are_made_anew(self, postgres_url: str) -> None:
        """Again and again, whatever they do at that moment: no call is lost, and none is answered twice at a time."""
        names = [f"c{number}" for number in range(100)]
        async with opened(postgres_url) as store, serving(postgres_url, 3) as workers:
            for worker in workers:
                worker.does = lambda _: asyncio.sleep(0.02)
            with looking(postgres_url) as connection:
                for number, name in enumerate(names):
                    connection.execute("SELECT turnwise_jobs.turnwise_call(%s)", (name,))
                    if number % 5 == 0:
                        connection.execute(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                        )
                    await asyncio.sleep(0.02)
            await until(lambda: not statuses(postgres_url))
            await until(lambda: set(total(workers)) == set(names))
            assert (await jobs_of(store).health(lease=LEASE)).running == 0


class TestPoolers:
    """A pooler in transaction mode lends a connection for one transaction only."""

    async def test_jobs_are_found_behind_one(self, own_postgres: PostgresServer, tmp_path: Path) -> None:
        """Nobody hears of new ones there, so they are looked for."""
        names = [f"c{number}" for number in range(30)]
        async with pooler(own_postgres) as url, serving(url, 2) as workers:
            for name in names:
                await workers[0].jobs.call(name)
            await until(lambda: total(workers) == Counter(names))
            await until(lambda: not statuses(own_postgres.url("postgres")))
