"""Several processes over one shared store: what they are there for, and the trouble that they get into.

Each host is a worker, which looks after conversations, or only takes requests, and may be the other one when it is
opened next; one at least is a worker. Processes die at any moment, stand still for less or more than a lease and go on
as if nothing had happened, are drained, and are opened again; the clock is set, and the store fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .disk import Storage
from .environment import in_process
from .runs import EngineHost, VirtualRun
from .shared_store import SharedStorage
from .world import PerformedEffects

if TYPE_CHECKING:
    from turnwise.states.events import Answer

HOSTS = ("A", "B", "C", "D", "E")
"""The names of hosts."""

QUIET = 300.0
"""Virtual seconds for which everything is left alone that is at rest. Processes that share a store look at it all the
time, so a longer wait would cost too much."""

LEASES = (2.0, 5.0, 15.0)
"""Seconds after which a process counts as dead whose heart has not beaten."""

SLOTS = (1, 2, 100)
"""How many conversations a worker looks after at once."""


class Roles:
    """Which of some hosts are workers. `lease` is the same for all."""

    def __init__(self, run: VirtualRun, names: Sequence[str]) -> None:
        self._chance = run.source("roles")
        self.lease = self._chance.pick(LEASES)
        self.slots = self._chance.pick(SLOTS)
        workers = self._chance.number(1, len(names))
        self._workers = set(names[:workers])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of every engine."""
        return {"lease": self.lease, "worker_slots": self.slots}

    def is_worker(self, name: str) -> bool:
        """Whether the host of this name works, as long as it is open."""
        return name in self._workers


async def make_trouble_for_processes(
    run: VirtualRun,
    hosts: Sequence[EngineHost],
    open_engine: Callable[[EngineHost], Awaitable[None]],
    lease: float,
    times: int,
) -> None:
    """So many times, set the clock, have a process die, stand still or be drained, or let the store fail."""
    chance = run.chance
    for _ in range(times):
        await asyncio.sleep(2 * chance.seconds())
        host = chance.pick(hosts)
        match chance.below(10):
            case 0:
                run.clock.set_by(chance.pick((3_600.0, -3_600.0, 0.5)))
            case 1 | 2 | 3:
                await _restart(run, host, open_engine)
            case 4 | 5 | 6 | 7:
                await _stand_still(run, _holder(run, hosts) or host, lease)
            case _:
                run.disk.failing = chance.pick((0.0, 0.1, 0.5))


def _holder(run: VirtualRun, hosts: Sequence[EngineHost]) -> EngineHost | None:
    """A host whose process looks after something now, most of the time."""
    assert isinstance(run.storage, SharedStorage)
    keepers = set(run.storage.cluster.keepers.values())
    holding = [host for host in hosts if host.process.name in keepers]
    return run.chance.pick(holding) if holding and run.chance.probably(0.8) else None


async def _restart(run: VirtualRun, host: EngineHost, open_engine: Callable[[EngineHost], Awaitable[None]]) -> None:
    """Have a process die, or close its engine, drained or not; then open the next."""
    chance = run.chance
    by_crash = chance.probably(0.6)
    if not by_crash and chance.probably(0.7):
        seconds = chance.pick((0.0, 1.0, 10.0))
        run.trace.record("host", f"{host.process.name} is drained for {seconds:g} s")
        await in_process(host.process.name, host.engine.drain(seconds))
    await host.close(by_crash=by_crash)
    await asyncio.sleep(chance.pick((chance.seconds(), chance.seconds(), 20.0)))
    await open_engine(host)


async def _stand_still(run: VirtualRun, host: EngineHost, lease: float) -> None:
    """Have a process stand still, and go on."""
    seconds = run.chance.pick((0.01, 0.9, 1.3, 1.5, 2.5)) * lease
    name = host.process.name
    run.trace.record("host", f"{name} stands still for {seconds:g} s")
    run.loop.stand_still(name)
    await asyncio.sleep(seconds)
    run.trace.record("host", f"{name} goes on")
    run.loop.go_on(name)


def performed_by(run: VirtualRun, roles: Roles | None) -> PerformedEffects:
    """Record what processes with these roles carry out, or without roles, engines over a store that is not shared."""
    if roles is None or not isinstance(run.storage, SharedStorage):
        return PerformedEffects(run.disk, run.trace)
    return PerformedEffects(run.disk, run.trace, run.storage.cluster, roles.lease)


def faults_of_custody(
    storage: Storage, performed: Sequence[tuple[str, int, Answer]], forged: Sequence[Answer] = ()
) -> Iterator[str]:
    """No answer is in a log that was not stored under the very custody under which its effect was begun. `performed`
    are the answers that performers gave, each with the process and the fence under which its effect was begun. Of those
    that users have `forged`, nothing can be said."""
    if not isinstance(storage, SharedStorage):
        return
    rows = storage.disk.rows
    for (key, seq), stored_by in storage.cluster.rows_by.items():
        if key != storage.disk.key_of(key[0]) or key[0] not in rows:
            continue
        event = rows[key[0]][seq - 1].event
        begun_by = [(process, fence) for process, fence, answer in performed if answer == event]
        if begun_by and stored_by not in begun_by and event not in forged:
            yield f"step {seq}, {event.type}, was given under the custody {begun_by[0]}, and stored under {stored_by}"


def faults_at_rest(storage: Storage) -> Iterator[str]:
    """When everything is at rest, nobody holds a conversation, and nobody is called."""
    if not isinstance(storage, SharedStorage):
        return
    cluster = storage.cluster
    if cluster.holders:
        yield f"{sorted(cluster.holders.values())} have not let go"
    if cluster.running or cluster.waiting:
        yield f"jobs wait or run: {[*cluster.running, *cluster.waiting]}"
