"""Several processes over one PostgreSQL database, when they die, stand still, or lose their server.

Users talk over HTTP to web processes, workers perform, and a fault strikes again and again. They send each request
again until it is acknowledged, and follow the updates at whatever process serves. In the end, what was acknowledged is
compared with what is stored, what the tools did with what they may do, and what followers received with what there is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from turnwise.testing.crashes import Seen, check_after_crashes
from turnwise.testing.postgres_server import PostgresServer

from ..conftest import SUMMARY_LINES
from ..support.cluster.clients import SCENES, Canceller, Follower, Talker, world_of
from ..support.cluster.cluster import Cluster, running
from ..support.cluster.member import JOURNAL, LEDGER
from ..support.fault_profile import IS_WHOLE, portions

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(0 if IS_WHOLE else 300)]

LEASE = 2.0
"""Seconds. Short, so that many processes can die in a test."""

TALKERS = 16 if IS_WHOLE else 6
"""How many users talk at the same time."""


@dataclass
class Crowd:
    """Users of a cluster. They go on until `over` is set."""

    cluster: Cluster
    talkers: list[Talker] = field(default_factory=list)
    cancellers: list[Canceller] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)
    over: bool = False

    def tasks(self) -> list[asyncio.Task[None]]:
        """Let everybody begin."""
        talking = [asyncio.ensure_future(one.talk(lambda: not self.over)) for one in self.talkers]
        cancelling = [
            asyncio.ensure_future(one.cancel(self.talkers[0].conversation_id, lambda: not self.over))
            for one in self.cancellers
        ]
        return talking + cancelling

    async def finish(self) -> None:
        """Have one more turn in each conversation, and check what the followers received until it ended."""
        for follower in self.followers:
            talker = next(one for one in self.talkers if one.conversation_id == follower.conversation_id)
            number = await talker.turn(f"{talker.name}-last", "look")
            while number not in follower.ended:
                await asyncio.sleep(0.05)
            await follower.check(number)

    async def close(self) -> None:
        """Close all connections."""
        for one in (*self.talkers, *self.cancellers, *self.followers):
            await one.close()

    def said(self) -> Counter[str]:
        """How turns ended, and what was refused."""
        return sum((one.statuses for one in (*self.talkers, *self.cancellers)), Counter())


@asynccontextmanager
async def crowded(cluster: Cluster, *, racing: bool = False, scenes: tuple[str, ...] = SCENES) -> AsyncIterator[Crowd]:
    """Users who talk while this holds, each in a conversation of their own, or where they are `racing`, in pairs in one
    conversation that a third one cancels. Afterwards everything comes to rest, stops, and is checked."""
    names = [f"c{number // (2 if racing else 1)}" for number in range(TALKERS)]
    crowd = Crowd(cluster, [Talker(cluster, name, seed, scenes) for seed, name in enumerate(names)])
    crowd.followers = [Follower(cluster, name, seed) for seed, name in enumerate(dict.fromkeys(names))]
    crowd.cancellers = [Canceller(cluster, 0)] if racing else []
    following = [asyncio.ensure_future(one.follow()) for one in crowd.followers]
    users = crowd.tasks()
    try:
        await asyncio.sleep(LEASE)
        yield crowd
        crowd.over = True
        await asyncio.gather(*users)
        await crowd.finish()
        await cluster.until_quiet()
    finally:
        for task in (*users, *following):
            task.cancel()
        await asyncio.wait([*users, *following])
        await crowd.close()


async def check(cluster: Cluster, crowd: Crowd, summary: list[str], title: str) -> None:
    """Stop all processes, and check what they have left. Adds a line to the report of the run."""
    codes = await asyncio.to_thread(cluster.stop)
    assert set(codes) == {0}, f"{codes}\n{cluster.reported()}"
    faults = await asyncio.to_thread(check_after_crashes, cluster.url, cluster.folder / JOURNAL)
    assert not faults, "\n".join(faults)
    world = world_of((cluster.folder / LEDGER).read_text(encoding="utf-8").splitlines())
    twice = {name: sum(runs["began"] > 1 for (each, _), runs in world.items() if each == name) for name, _ in world}
    assert not twice.get("pay") and not twice.get("mail"), twice
    taken = len(Seen.read(cluster.folder / JOURNAL).taken)
    repeated = sum(one.repeated for one in crowd.talkers)
    summary.append(
        f"{title}: {taken} requests acknowledged, 0 lost; {repeated} sent again; {dict(crowd.said())}; "
        f"calls begun twice: { ({name: count for name, count in twice.items() if count}) }"
    )


Strike = Callable[[Cluster], Awaitable[None]]


async def suffer(
    server: PostgresServer, folder: Path, summary: list[str], title: str, strike: Strike, **options: float
) -> None:
    """Let users talk while a fault strikes, and check what is left."""
    with running(server, folder, lease=LEASE, **options) as cluster:
        async with crowded(cluster) as crowd:
            await strike(cluster)
        await check(cluster, crowd, summary, title)


@pytest.fixture
def summary(pytestconfig: pytest.Config) -> list[str]:
    """The lines at the end of the report."""
    return pytestconfig.stash[SUMMARY_LINES]


class TestProcesses:
    """Processes that die or stand still."""

    async def test_processes_that_are_killed(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """Workers and web processes, at any moment, one after the other."""
        kills = max(portions(20), 3)

        async def strike(cluster: Cluster) -> None:
            for _ in range(kills):
                await cluster.kill()
                await asyncio.sleep(cluster.moment(2 * LEASE))

        await suffer(own_postgres, tmp_path, summary, f"{kills} kills", strike)

    async def test_a_worker_that_stands_still(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """For longer than the lease; then it goes on, and begins nothing that is not its own any more."""
        times = portions(6)

        async def strike(cluster: Cluster) -> None:
            for _ in range(times):
                await cluster.freeze(cluster.pick_worker(), 3 * LEASE)
                await asyncio.sleep(cluster.moment(LEASE))

        await suffer(own_postgres, tmp_path, summary, f"{times} times stopped for three leases", strike)

    async def test_all_workers_at_once(self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]) -> None:
        """Everything waits, and goes on where it was when there are workers again."""

        async def strike(cluster: Cluster) -> None:
            for worker in cluster.workers():
                worker.kill()
                cluster.members.remove(worker)
            await asyncio.sleep(LEASE)
            for worker in [cluster.start("worker"), cluster.start("worker")]:
                await asyncio.to_thread(worker.until_ready)

        await suffer(own_postgres, tmp_path, summary, "all workers killed", strike)


class TestServer:
    """A server of PostgreSQL that goes away, breaks connections off, or has none left."""

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    async def test_a_restart(self, mode: str, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]) -> None:
        """Under load, with all transactions broken off."""
        times = portions(5)

        async def strike(cluster: Cluster) -> None:
            for _ in range(times):
                await cluster.restart_server(mode)  # type: ignore[arg-type]
                await asyncio.sleep(LEASE + cluster.moment(LEASE))

        await suffer(own_postgres, tmp_path, summary, f"{times} restarts -m {mode}", strike)

    async def test_an_outage_of_some_leases(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """Nobody could beat its heart meanwhile, so nobody counts as dead afterwards."""

        async def strike(cluster: Cluster) -> None:
            await asyncio.to_thread(own_postgres.shut_down, "immediate")
            await asyncio.sleep(2.5 * LEASE)
            await asyncio.to_thread(own_postgres.resume)
            await asyncio.sleep(2 * LEASE)

        await suffer(own_postgres, tmp_path, summary, "an outage of 2.5 leases", strike)

    async def test_connections_that_break(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """In the middle of a step, many times: also the ones that listen."""
        broken = 0

        async def strike(cluster: Cluster) -> None:
            nonlocal broken
            end = time.monotonic() + (40 if IS_WHOLE else 6)
            while time.monotonic() < end:
                broken += await asyncio.to_thread(cluster.break_connections, 3)
                await asyncio.sleep(cluster.moment(0.4))

        await suffer(own_postgres, tmp_path, summary, "connections broken off", strike)
        assert broken > 20

    async def test_a_server_without_connections(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """Pools of two connections, which break and get no new ones for a while."""

        async def strike(cluster: Cluster) -> None:
            for _ in range(portions(3)):
                with cluster.full_server():
                    await asyncio.sleep(LEASE)
                await asyncio.sleep(LEASE)

        await suffer(own_postgres, tmp_path, summary, "a server without connections", strike, connections=2)


class TestRaces:
    """Requests of several users for one conversation, at different processes."""

    async def test_two_web_processes_race(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """Messages of two users, cancels of a third one, and what the workers store: all in one order."""
        with running(own_postgres, tmp_path, lease=LEASE, seconds=0.1) as cluster:
            async with crowded(cluster, racing=True) as crowd:
                await asyncio.sleep(60 if IS_WHOLE else 5)
            await check(cluster, crowd, summary, "two web processes race")

    async def test_they_race_while_processes_die(
        self, own_postgres: PostgresServer, tmp_path: Path, summary: list[str]
    ) -> None:
        """The same, with kills of both kinds."""
        with running(own_postgres, tmp_path, lease=LEASE, seconds=0.3) as cluster:
            async with crowded(cluster, racing=True) as crowd:
                for _ in range(max(portions(10), 2)):
                    await cluster.kill()
                    await asyncio.sleep(cluster.moment(2 * LEASE))
            await check(cluster, crowd, summary, "a race while processes die")
