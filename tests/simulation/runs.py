"""What every simulation runs in: virtual time, one source of randomness, a store, a trace, and engines in trouble.

What happens is for the simulation to say. Here it is run to its end, in a process whose ids follow from the seed, and
everything that went wrong is reported.

A host opens an engine, closes it, and opens the next one. Everything goes in by the public doors of `Engine.open`. A
process that dies goes on as a zombie until its engine is closed: its store fails every call, its channels deliver
nothing, and what it tells its callers does not count. Clocks are set, processes die, disks fail.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from turnwise.states.errors import EngineClosed, Refused, StoreError, UnknownConversation
from turnwise.states.policy import ModelSpec

from .disk import Disk, Process, Row, Storage
from .environment import (
    EventTrace,
    Hangs,
    RandomSource,
    VirtualClock,
    VirtualLoop,
    captured_logs,
    in_process,
    place_of,
)
from .faulty_store import FaultyStorage
from .shared_store import SharedStorage
from .world import OpenEngine, OpensEngines, SimulatedChannel

if TYPE_CHECKING:
    from turnwise.effects.clock import Clock
    from turnwise.engine.conversation import Conversation
    from turnwise.engine.engine import Engine

PATIENCE = 10_000.0
"""Virtual seconds within which everything comes to rest once everybody wants it to: more than the longest wait of a
tool or a timer, and the hour by which a clock is set back during it."""

BOUND = 100 * PATIENCE
"""Virtual seconds that a simulation may take in all."""

ATTEMPTS = 10
"""How often a task is told to stop."""


class VirtualRun:
    """Everything that a simulation takes place in. `options` are those of the command line that repeat it.

    With `file` the store is turnwise's own over a SQLite file in a temporary folder, otherwise it is in memory; if it
    is `shared`, several processes have it open at once, and look after its conversations in turn.
    """

    def __init__(self, seed: int, options: str = "", *, file: bool = False, shared: bool = False) -> None:
        self.seed = seed
        self.chance = self.source("simulation")
        self.loop = VirtualLoop(self.source("loop"), disorder=self.chance.pick((0.0, 0.1, 1.0, 1.0)))
        self.trace = EventTrace(self.loop.time)
        self.clock = VirtualClock(self.loop)
        self.disk = Disk(self.source("disk"), self.trace)
        self.storage = self._storage(file=file, shared=shared)
        self._options = options

    def source(self, name: str) -> RandomSource:
        """The source of randomness of this name."""
        return RandomSource(f"{self.seed} {name}")

    def _storage(self, *, file: bool, shared: bool) -> Storage:
        if shared:
            return SharedStorage(self.disk, self.clock)
        if not file:
            return FaultyStorage(self.disk)
        from .file_storage import FileStorage

        return FileStorage(self.disk, self.clock)

    def run(self, live: Callable[[], Coroutine[Any, Any, None]]) -> Report:
        """Let this happen. Raises `SimulationFailed`.

        Raises RuntimeError where an event loop is running: a simulation brings its own.
        """
        if _is_in_event_loop():
            raise RuntimeError("A simulation brings its own event loop; run it where there is none.")
        with (
            _no_garbage_collection(),
            patch("uuid.uuid4", self.source("ids").uuid),
            captured_logs(self.trace, self.loop),
        ):
            cause = self._happen(live)
            for fault in self.storage.faults():
                self.trace.report_fault(fault)
            self._clean_up()
            self.storage.close()
        if self.trace.faults:
            raise SimulationFailed(self.seed, self.trace.faults[0], tuple(self.trace.lines), self._options) from cause
        return Report(self.seed, self.disk.steps, self.disk.text(), tuple(self.trace.lines))

    def _happen(self, live: Callable[[], Coroutine[Any, Any, None]]) -> Exception | None:
        """Let it happen. Returns what broke it off."""
        try:
            self.loop.run(live(), bound=BOUND)
        except Hangs as hangs:
            self.trace.report_fault(str(hangs))
        except Exception as error:
            self.trace.report_fault(f"it broke off: {error!r}")
            return error
        return None

    def report_unfinished_tasks(self) -> None:
        """When all engines are closed, no task is left but the one that calls this."""
        left = [task for task in self.loop.unfinished() if task is not asyncio.current_task()]
        if left:
            self.trace.report_fault(f"the engines are closed, and there is left: {'; '.join(map(place_of, left))}")

    def _clean_up(self) -> None:
        """After a failure tasks may be left, and some of them may not want to stop."""
        for _ in range(ATTEMPTS):
            for task in self.loop.unfinished():
                task.cancel()
            if self.loop.unfinished():
                with suppress(Hangs):
                    self.loop.run(asyncio.sleep(PATIENCE), bound=BOUND)
        self.loop.close()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """While this holds, Python frees only what nothing refers to. When it collects the rest depends on what else the
    process does, and so would which conversations are still in memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


SHOWN_LINES = 12
"""How many lines of a trace stand in a failure's message."""


class SimulationFailed(AssertionError):
    """An invariant did not hold in a simulation. The message says which, and how to see it again; `trace` is everything
    that happened, line by line."""

    def __init__(self, seed: int, fault: str, trace: tuple[str, ...], options: str = "") -> None:
        found = next(place for place, line in enumerate(trace) if line.endswith(fault)) + 1
        before = "\n".join(trace[max(0, found - SHOWN_LINES) : found])
        again = f"python -m tests.simulation --seed {seed}{options}"
        super().__init__(f"Seed {seed}: {fault}\n{before}\nThe whole trace: {again}")
        self.seed = seed
        self.trace = trace


@dataclass(frozen=True)
class Report:
    """What came of a simulation: how many steps were stored, all of them as text, and what happened, line by line."""

    seed: int
    steps: int
    log: str
    trace: tuple[str, ...]


class EngineHost:
    """Opens engines one after the other on the same store. `times_closed` counts those that were closed."""

    def __init__(
        self,
        name: str,
        chance: RandomSource,
        open_engine: OpenEngine,
        storage: Storage,
        world: OpensEngines,
        clock: Clock,
        trace: EventTrace,
        channels: Sequence[SimulatedChannel] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`options` are those of its engines, besides."""
        self.name = name
        self.times_closed = 0
        self.process: Process
        """The newest process."""
        self._chance = chance
        self._open_engine = open_engine
        self._storage = storage
        self._world = world
        self._clock = clock
        self._trace = trace
        self._channels = channels
        self._options = options
        self._engine: Engine | None = None
        self._behind: list[str] = []
        """The conversations of which others have stored steps."""
        self._is_behind = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def open(self, models: Sequence[ModelSpec], **settings: Any) -> None:
        """Open an engine with these models and settings."""
        process = self.process = await self._storage.open(f"{self.name}{self.times_closed + 1}")
        self._trace.record("host", f"opens {process.name}")
        self._engine = await in_process(process.name, self._opened(process, models, settings))
        self._following = asyncio.ensure_future(self._follow(self._engine, process))

    async def _opened(self, process: Process, models: Sequence[ModelSpec], settings: Mapping[str, Any]) -> Engine:
        from turnwise.engine.settings import Settings

        opening = self._world.open_engine(
            process,
            self._open_engine,
            models,
            store=process.store,
            channels=[channel.of(process) for channel in self._channels],
            clock=self._clock,
            settings=Settings(**settings),
            **self._options,
        )
        return await opening

    @property
    def engine(self) -> Engine:
        """The engine that is open. Raises `EngineClosed`."""
        if self._engine is None:
            raise EngineClosed
        return self._engine

    async def create(self, **options: Any) -> str:
        """Create a conversation, as `Engine.create` does. Returns its id."""
        return (await self.engine.create(system="You book tables.", **options)).id

    async def handle(self, conversation_id: str) -> Conversation:
        """A new handle on a conversation. Raises `EngineClosed`."""
        return await self.engine.get(conversation_id)

    def answer(self, conversation_id: str, answer: Any) -> None:
        """Hand in the answer to an effect, as a performer in another process would. Raises `EngineClosed`."""
        self.engine.answer(conversation_id, answer)

    async def close(self, *, by_crash: bool = False) -> None:
        """Close the engine, whatever it is doing. In a crash the process dies first, between two statements."""
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        self._trace.record("host", f"{self.process.name} {'dies' if by_crash else 'is closed'}")
        if by_crash:
            await self._die()
        self.times_closed += 1
        if self._following is not None:
            self._following.cancel()
        await in_process(self.process.name, engine.close())
        await self.process.store.close()
        self._trace.record("host", f"{self.process.name} is gone")

    async def _die(self) -> None:
        self.process.die_after(self._chance.number(0, 4))
        if not self.process.is_dead:
            await asyncio.sleep(self._chance.pick((0.0, 0.02, 1.0)))
        self.process.die_after(0)

    # --- what others store

    def follow(self, conversation_id: str, row: Row) -> None:
        """Somebody has stored a step: if it was another process, this host's engine is to catch up."""
        if row.writer != self.process.name:
            if conversation_id not in self._behind:
                self._behind.append(conversation_id)
            self._is_behind.set()

    async def _follow(self, engine: Engine, process: Process) -> None:
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            await asyncio.sleep(self._chance.seconds())
            behind, self._behind = self._behind, []
            for conversation_id in behind:
                try:
                    await engine.refresh(conversation_id)
                except EngineClosed:
                    return
                except UnknownConversation:
                    continue  # deleted meanwhile
                except (Refused, StoreError):
                    if process.is_dead:
                        return
                    self._behind.append(conversation_id)
                    self._is_behind.set()


async def make_trouble(
    run: VirtualRun, hosts: Sequence[EngineHost], open_engine: Callable[[EngineHost], Awaitable[None]], times: int
) -> None:
    """So many times, set the clock, close an engine or let its process die and open the next, or let the disk fail."""
    chance = run.chance
    for _ in range(times):
        await asyncio.sleep(2 * chance.seconds())
        match chance.below(5):
            case 0:
                run.clock.set_by(chance.pick((3_600.0, -3_600.0, 0.5)))
            case 1 | 2:
                await _restart(run, chance.pick(hosts), open_engine)
            case _:
                run.disk.failing = chance.pick((0.0, 0.1, 0.5))


async def _restart(run: VirtualRun, host: EngineHost, open_engine: Callable[[EngineHost], Awaitable[None]]) -> None:
    """Close an engine, or let its process die, whatever it is doing; then open the next."""
    await host.close(by_crash=run.chance.probably(0.5))
    await asyncio.sleep(run.chance.seconds())
    await open_engine(host)
