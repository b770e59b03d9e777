"""What every simulation runs in: virtual time, one source of randomness, a store, and a trace of what happens.

What happens is for the simulation to say. Here it is run to its end, in a process whose ids follow from the seed, and
everything that went wrong is reported.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from .environment.clock import VirtualClock
from .environment.event_loop import Hangs, VirtualLoop, place_of
from .environment.event_trace import EventTrace
from .environment.log_capture import captured_logs
from .environment.random_source import RandomSource
from .storage.disk import Disk
from .storage.memory_store import MemoryStorage
from .storage.storage import Storage

PATIENCE = 10_000.0
"""Virtual seconds within which everything comes to rest once everybody wants it to: more than the longest wait of a
tool or a timer, and the hour by which a clock is set back during it."""

SHOWN_LINES = 12
"""How many lines of a trace stand in a failure's message."""

ATTEMPTS = 10
"""How often a task is told to stop."""

BOUND = 100 * PATIENCE
"""Virtual seconds that a simulation may take in all."""


class SimulationFailed(AssertionError):
    """An invariant did not hold in a simulation. The message says which, and how to see it again; `trace` is everything
    that happened, line by line."""

    def __init__(self, seed: int, fault: str, trace: tuple[str, ...], options: str = "") -> None:
        found = next(place for place, line in enumerate(trace) if line.endswith(fault)) + 1
        before = "\n".join(trace[max(0, found - SHOWN_LINES) : found])
        again = f"python -m turnwise.testing.simulation --seed {seed}{options}"
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


class VirtualRun:
    """Everything that a simulation takes place in. `options` are those of the command line that repeat it.

    With `file` the store is turnwise's own over a SQLite file in a temporary folder, otherwise it is in memory.
    """

    def __init__(self, seed: int, options: str = "", *, file: bool = False) -> None:
        self.seed = seed
        self.chance = self.source("simulation")
        self.loop = VirtualLoop(self.source("loop"), disorder=self.chance.pick((0.0, 0.1, 1.0, 1.0)))
        self.trace = EventTrace(self.loop)
        self.clock = VirtualClock(self.loop)
        self.disk = Disk(self.source("disk"), self.trace)
        self.storage = self._file_storage() if file else MemoryStorage(self.disk)
        self._options = options

    def source(self, name: str) -> RandomSource:
        """The source of randomness of this name."""
        return RandomSource(f"{self.seed} {name}")

    def _file_storage(self) -> Storage:
        from .file_storage.storage import FileStorage

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


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
