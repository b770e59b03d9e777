"""The environment of a simulation: an event loop without real time, its clocks, its randomness, and a trace.

When nothing is left to do, the clock of the event loop jumps to whatever comes next. An hour's wait costs nothing, and
nothing depends on how fast the machine is. Wherever nothing fixes the order of what happens, it is random: callbacks
that one task schedules keep their order, as asyncio promises; those of different tasks, and timers that are due at one
moment, run in any order. Every choice follows from the seed.

What happens stands in the trace, line by line, with the faults that were found. What is logged and warned about by
turnwise, by asyncio and by Python itself goes there, too: a bug often shows there first, as a task whose exception
nobody retrieved or a coroutine that nobody awaited.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
import warnings
from asyncio.events import _set_running_loop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from turnwise.testing.generation.chance import NOON, Seeded

T = TypeVar("T")

MAX_CALLS = 1_000_000
"""How many callbacks one run may take: a thousand times as many as a long conversation."""

Arguments = TypeVarTuple("Arguments")


PROCESS: ContextVar[str] = ContextVar("simulated-process", default="")
"""The name of the process in which something happens; empty for what belongs to none. What begins somewhere goes on
there."""


async def in_process(name: str, doing: Coroutine[Any, Any, T]) -> T:
    """Do this in the process of this name."""
    context = copy_context()
    context.run(PROCESS.set, name)
    return await asyncio.get_running_loop().create_task(doing, context=context)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time. `disorder` is the probability that the next callback is chosen at random.

    A process may stand still for a while, as one does whose computer is suspended. What is due in it meanwhile happens
    when it goes on.
    """

    def __init__(self, chance: RandomSource, disorder: float = 0.0) -> None:
        super().__init__()
        self._chance = chance
        self._disorder = disorder
        self._now = 0.0
        self._bound = 0.0
        self._calls: list[tuple[object, asyncio.Handle, str]] = []
        """The callbacks that are ready, oldest first, each with the task or callback that scheduled it, and its
        process."""
        self._timers: list[tuple[float, int, int, asyncio.TimerHandle, str]] = []
        self._still: dict[str, list[tuple[object, asyncio.Handle, str]]] = {}
        """The processes that stand still, and what is ready in them."""
        self._unfinished: list[asyncio.Task[Any]] = []
        self._count = 0
        self._current: object = self

    def __del__(self) -> None:
        """Nothing: this loop holds no resources, so one that was never closed is not worth a warning."""

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def run(self, main: Coroutine[Any, Any, T], *, bound: float) -> T:
        """Run until `main` is done. Raises `Hangs` if that takes more than `bound` virtual seconds."""
        self._bound = self._now + bound
        task: asyncio.Task[T] = self.create_task(main)
        _set_running_loop(self)
        try:
            for _ in range(MAX_CALLS):
                if task.done():
                    return task.result()
                self._turn()
            raise Hangs(f"it goes round in circles; {self._waiting()}")
        finally:
            _set_running_loop(None)

    def stand_still(self, process: str) -> None:
        """Let nothing happen in this process until `go_on`."""
        self._still.setdefault(process, [])

    def go_on(self, process: str) -> None:
        """Let a process that stands still go on."""
        self._calls += self._still.pop(process, [])

    def unfinished(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that are not done, oldest first."""
        self._unfinished = [task for task in self._unfinished if not task.done()]
        return tuple(self._unfinished)

    # --- what asyncio asks of a loop

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback."""
        handle = asyncio.Handle(callback, args, self, context)
        self._calls.append((asyncio.current_task(self) or self._current, handle, _process_of(context)))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback; there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a moment."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        tie = self._chance.below(10) if self._disorder else 0
        heappush(self._timers, (when, tie, self._count, handle, _process_of(context)))
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Schedule a coroutine."""
        task = super().create_task(coro, **options)
        self._unfinished.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Call a function that only computes, in place of a thread, which could not be repeated."""
        called: asyncio.Future[T] = self.create_future()

        def call() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not called.done():
                    called.set_exception(error)
            else:
                if not called.done():
                    called.set_result(result)

        self.call_soon(call)
        return called

    # --- one callback after the other

    def _turn(self) -> None:
        self._hold_back()
        while not self._calls:
            self._jump()
            self._hold_back()
        handle = self._calls.pop(self._next())[1]
        self._current = handle
        if not handle.cancelled():
            handle._run()

    def _hold_back(self) -> None:
        """Set aside what is ready in processes that stand still."""
        if self._still and any(call[2] in self._still for call in self._calls):
            for call in self._calls:
                if call[2] in self._still:
                    self._still[call[2]].append(call)
            self._calls = [call for call in self._calls if call[2] not in self._still]

    def _next(self) -> int:
        """The place of the callback to run: the first one of its task."""
        if len(self._calls) == 1 or not self._chance.probably(self._disorder):
            return 0
        scheduled_by = self._chance.pick(self._calls)[0]
        return next(place for place, (who, _, _) in enumerate(self._calls) if who is scheduled_by)

    def _jump(self) -> None:
        """Advance the time to the moment at which the next timer is due."""
        while self._timers and self._timers[0][3].cancelled():
            heappop(self._timers)
        if not self._timers:
            raise Hangs(f"nothing happens any more; {self._waiting()}")
        self._now = max(self._now, self._timers[0][0])
        if self._now > self._bound:
            raise Hangs(f"it takes for ever; {self._waiting()}")
        while self._timers and self._timers[0][0] <= self._now:
            *_, handle, process = heappop(self._timers)
            self._calls.append((handle, handle, process))

    def _waiting(self) -> str:
        return "; ".join(f"{place_of(task)} waits" for task in self.unfinished()) or "nobody waits"


def _process_of(context: Context | None) -> str:
    return PROCESS.get() if context is None else context.get(PROCESS, "")


class Hangs(Exception):
    """Nothing will happen any more, or the same happens for ever, or the time given is over. The message says which
    tasks wait, and where."""


def place_of(task: asyncio.Task[Any]) -> str:
    """The name of a task, and where in the code it is."""
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", task.get_name())
    while (inner := getattr(coroutine, "cr_await", None)) is not None and hasattr(inner, "cr_frame"):
        coroutine = inner
    frame = getattr(coroutine, "cr_frame", None)
    return f"{name} at {frame.f_code.co_qualname}:{frame.f_lineno}" if frame is not None else name


class VirtualClock:
    """A `Clock` in virtual time. Like the system's clock it measures waits by a monotonic clock that nobody sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = 0.0
        self.was_set_back = False

    def now(self) -> datetime:
        """This moment, in UTC."""
        return NOON + timedelta(seconds=self._loop.time() + self._offset)

    def monotonic(self) -> float:
        """Seconds by the monotonic clock."""
        return self._loop.time()

    def set_by(self, seconds: float) -> None:
        """Set the clock forward or back by so many seconds, while the monotonic clock goes on."""
        self._offset += seconds
        self.was_set_back |= seconds < 0

    async def sleep_until(self, due: datetime) -> None:
        """Return when `due` is reached, at once if it lies in the past."""
        await asyncio.sleep(max(0.0, (due - self.now()).total_seconds()))


class HostClock:
    """The clock of one host, ahead of the clock of the simulation by as many microseconds as its `number`.

    Timers of several hosts that are due at one moment fire in different microseconds, as in reality. Otherwise hosts
    would make events that are equal in every field, and an engine could take the event of another one for its own.
    """

    def __init__(self, clock: VirtualClock, number: int) -> None:
        self._clock = clock
        self._ahead = timedelta(microseconds=number)

    def now(self) -> datetime:
        """This moment, in UTC."""
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        """Seconds by the monotonic clock."""
        return self._clock.monotonic()

    async def sleep_until(self, due: datetime) -> None:
        """Return when the clock of the simulation has reached `due`, at once if it lies in the past."""
        await self._clock.sleep_until(due)


class RandomSource(Seeded):
    """Choices that follow from a seed, the same on every machine and in every process."""

    def seconds(self) -> float:
        """A duration: often none, or whole seconds, so that several things happen at the same moment."""
        match self.below(10):
            case 0 | 1 | 2:
                return 0.0
            case 3 | 4 | 5:
                return self.below(50_000) / 1_000_000
            case 6 | 7:
                return self.below(3_000) / 1_000
            case _:
                return float(self.number(1, 6))

    def uuid(self) -> uuid.UUID:
        """A new id, in the place of `uuid.uuid4`."""
        return uuid.UUID(int=self.below(2**128), version=4)


class Steady(RandomSource):
    """Choices by which nothing takes time, and nothing fails or is lost."""

    def probably(self, probability: float) -> bool:
        """Never."""
        return probability >= 1

    def pick(self, options: Any) -> Any:
        """The first one."""
        return options[0] if isinstance(options, list | tuple) else super().pick(options)

    def seconds(self) -> float:
        """None."""
        return 0.0


class EventTrace:
    """The lines so far, each with its `time`, and the faults."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.lines: list[str] = []
        self.faults: list[str] = []

    def record(self, who: str, what: str) -> None:
        """Add a line about something that happened."""
        self.lines.append(f"{self._time():12.6f}  {who:<11} {what}")

    def report_fault(self, sentence: str) -> None:
        """Add a line about something that must not happen."""
        self.record("FAULT", sentence)
        self.faults.append(sentence)


@contextmanager
def captured_logs(trace: EventTrace, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While this holds, logs and warnings go into the trace and nowhere else."""

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        trace.report_fault(f"{context['message']}: {context.get('exception')!r}")

    logger, handler = logging.getLogger("turnwise"), _TraceHandler(trace)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    loop.set_exception_handler(report)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
    for warning in warned:
        trace.report_fault(str(warning.message))


class _TraceHandler(logging.Handler):
    """Adds what turnwise logs to the trace. An unexpected error in the mailbox is a fault."""

    def __init__(self, trace: EventTrace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        self._trace.record("log", record.getMessage())
        if record.name == "turnwise.mailbox" and record.exc_info:
            self._trace.report_fault(f"{record.getMessage()} {record.exc_info[1]!r}")
