"""An event loop without real time: when nothing is left to do, the clock jumps to whatever comes next.

An hour's wait costs nothing, and nothing depends on how fast the machine is. Wherever nothing fixes the order of what
happens, it is random: callbacks that one task schedules keep their order, as asyncio promises; those of different
tasks, and timers that are due at one moment, run in any order.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from .random_source import RandomSource

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


MAX_CALLS = 1_000_000
"""How many callbacks one run may take: a thousand times as many as a long conversation."""


class Hangs(Exception):
    """Nothing will happen any more, or the same happens for ever, or the time given is over. The message says which
    tasks wait, and where."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time. `disorder` is the probability that the next callback is chosen at random."""

    def __init__(self, chance: RandomSource, disorder: float = 0.0) -> None:
        super().__init__()
        self._chance = chance
        self._disorder = disorder
        self._now = 0.0
        self._bound = 0.0
        self._calls: list[tuple[object, asyncio.Handle]] = []
        """The callbacks that are ready, oldest first, each with the task or callback that scheduled it."""
        self._timers: list[tuple[float, int, int, asyncio.TimerHandle]] = []
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
        self._calls.append((asyncio.current_task(self) or self._current, handle))
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
        heappush(self._timers, (when, tie, self._count, handle))
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Schedule a coroutine."""
        task = super().create_task(coro, **options)
        self._unfinished.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Raises RuntimeError: what threads do could not be repeated."""
        raise RuntimeError("A simulation has no threads.")

    # --- one callback after the other

    def _turn(self) -> None:
        if not self._calls:
            self._jump()
        handle = self._calls.pop(self._next())[1]
        self._current = handle
        if not handle.cancelled():
            handle._run()

    def _next(self) -> int:
        """The place of the callback to run: the first one of its task."""
        if len(self._calls) == 1 or not self._chance.probably(self._disorder):
            return 0
        scheduled_by = self._chance.pick(self._calls)[0]
        return next(place for place, (who, _) in enumerate(self._calls) if who is scheduled_by)

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
            handle = heappop(self._timers)[3]
            self._calls.append((handle, handle))

    def _waiting(self) -> str:
        return "; ".join(f"{place_of(task)} waits" for task in self.unfinished()) or "nobody waits"


def place_of(task: asyncio.Task[Any]) -> str:
    """The name of a task, and where in the code it is."""
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", task.get_name())
    while (inner := getattr(coroutine, "cr_await", None)) is not None and hasattr(inner, "cr_frame"):
        coroutine = inner
    frame = getattr(coroutine, "cr_frame", None)
    return f"{name} at {frame.f_code.co_qualname}:{frame.f_lineno}" if frame is not None else name
