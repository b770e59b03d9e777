"""`turnwise worker`: a process that looks after conversations of a database which several processes share.

It takes those that have work, has each go on until it rests, and lets go. Requests come in through other processes,
such as `turnwise serve`. On the first signal to stop it takes no more, and waits for those at hand to come to rest;
what has not then goes on in another worker.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from ....engine.custody import CustodyCounts
from ....engine.engine import Engine
from ....persistence.opening import address_of
from ....persistence.ports import JobsHealth, ObservableJobs, SharedStore, Store
from ....states.errors import ConfigurationError, StoreError
from ...ending import StopSignals, end_process_after, stop_signals
from ..configuration import (
    Settings,
    channels_named,
    check_rules,
    preset_of,
    tools_named,
    with_chosen_profile,
    with_required_tools,
)
from ..output.lines import counted, print_notice, show_warnings_of

LEFT = 1
"""The exit code of a worker that left conversations to others which had not come to rest."""

_CLOSING = 15.0
"""Seconds that the engine may take to close before the process is ended: what was said is tried once more on every
channel, and tools have a second to stop."""

_LOOK = 1.0
"""Seconds between two looks at whether it still gets conversations."""


async def worker(settings: Settings, *, as_json: bool) -> int:
    """Look after conversations until a signal comes, and return the exit code.

    Raises `ConfigurationError` for a database that belongs to one process at a time, and `StoreError` for one that
    cannot be used, also if that becomes so later.
    """
    address = address_of(settings.db)
    if not address.is_shared:
        raise ConfigurationError(
            f"A worker needs a database that processes share, such as PostgreSQL; {address.name} is one process's own."
        )
    if not settings.debug:
        show_warnings_of("turnwise.postgres")
    engine = await engine_of(settings, worker=True)
    with stop_signals() as signals:
        async with engine:
            for sentence in engine.server_faults:
                print_notice(sentence)
            slots = counted(settings.worker_slots, "conversation")
            name = engine.custody_counts.name
            print(f"turnwise works for {address.name} as {name}, {slots} at once", flush=True)
            async with _health_lines(engine, settings, as_json=as_json):
                await _until_told(engine, signals)
                await signals.finish(drain(engine, settings.drain))
            left = engine.custody_counts.held
            end_process_after(_CLOSING, LEFT if left else 0)
    return exit_code(left)


async def engine_of(settings: Settings, *, worker: bool) -> Engine:
    """Return an engine with these settings, which is not open yet; whether it looks after conversations is for `worker`
    to say. Its model can be asked, and it can do what the preset asks for. Raises `ConfigurationError`."""
    settings, policy = with_chosen_profile(settings), preset_of(settings)
    engine = Engine.open(
        settings.db,
        worker=worker,
        model=settings.model,
        models=settings.models,
        tools=tools_named(with_required_tools(settings.tools, policy)),
        channels=channels_named(settings.channels),
        policy=policy,
        settings=settings,
    )
    check_rules(engine, policy)
    await engine.check(servers=False)
    return engine


async def _until_told(engine: Engine, signals: StopSignals) -> None:
    """Return at the first signal. Raises `StoreError` if the engine gets nothing more to look after."""
    while not signals.first.is_set():
        if fault := engine.custody_counts.fault:
            raise StoreError(fault)
        try:
            async with asyncio.timeout(_LOOK):
                await signals.first.wait()
        except TimeoutError:
            continue


async def drain(engine: Engine, seconds: float) -> None:
    """Wait until what is at hand has come to rest, for so many seconds."""
    if held := engine.custody_counts.held:
        at_hand = counted(held, "conversation")
        print_notice(f"Waiting up to {seconds:g} s for {at_hand} to come to rest; a second signal ends that.")
    await engine.drain(seconds)


def exit_code(left: int) -> int:
    """Return the exit code where so many conversations had not come to rest, and say so."""
    if left:
        print_notice(f"{counted(left, 'conversation')} had not come to rest: other workers go on.")
    return LEFT if left else 0


@asynccontextmanager
async def _health_lines(engine: Engine, settings: Settings, *, as_json: bool) -> AsyncIterator[None]:
    """Write a line to stderr every `health` seconds in which something has changed; with 0 none."""
    lines = asyncio.ensure_future(_write_health(engine, settings, as_json=as_json)) if settings.health else None
    try:
        yield
    finally:
        if lines is not None:
            lines.cancel()
            await asyncio.gather(lines, return_exceptions=True)


async def _write_health(engine: Engine, settings: Settings, *, as_json: bool) -> None:
    before: Health | None = None
    while True:
        await asyncio.sleep(settings.health)
        health = Health(engine.custody_counts, await _jobs_health(engine.store, settings.lease))
        if before is None or health.counted != before.counted:
            now = datetime.now(UTC)
            print(health.as_json(now) if as_json else health.as_text(now), file=sys.stderr, flush=True)
            before = health


async def _jobs_health(store: Store, lease: float) -> JobsHealth | None:
    """Return how the jobs fare, None while the database does not say. Workers that were silent for longer than a lease
    are not counted: others have taken over what they held."""
    if not isinstance(store, SharedStore) or not isinstance(store.jobs, ObservableJobs):
        return None
    try:
        return await store.jobs.health(lease=lease)
    except StoreError:
        return None


@dataclass(frozen=True)
class Health:
    """How a worker fares, and what waits for all of them."""

    custody: CustodyCounts
    jobs: JobsHealth | None

    @property
    def counted(self) -> Health:
        """What may change that is worth another line: a wait grows by itself."""
        return self if self.jobs is None else replace(self, jobs=replace(self.jobs, longest_wait=None))

    def as_text(self, at: datetime) -> str:
        """A line for people. `Pure.`"""
        own = self.custody
        line = f"{at.astimezone():%H:%M:%S}  {own.name}: {own.held} held; {own.taken} taken"
        line += f", {own.taken_over} of them over from others" * bool(own.taken_over) + f", {own.lost} lost"
        if self.jobs is None:
            return f"{line}; the database does not say what waits"
        wait = "" if self.jobs.longest_wait is None else f", the first for {self.jobs.longest_wait:.1f} s"
        return f"{line}; {self.jobs.waiting} wait{wait}; {counted(self.jobs.workers, 'worker')}"

    def as_json(self, at: datetime) -> str:
        """A line for programs. `Pure.`"""
        jobs = None if self.jobs is None else asdict(self.jobs)
        return json.dumps({"at": at.isoformat(), **asdict(self.custody), "jobs": jobs})
