"""An event loop that knows its timers, for benchmarks that count them."""

from __future__ import annotations

from asyncio import SelectorEventLoop, TimerHandle
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


class CountingLoop(SelectorEventLoop):
    """An event loop that knows its timers."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: WeakSet[TimerHandle] = WeakSet()

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> TimerHandle:
        """Start a timer, and remember it."""
        timer = super().call_at(when, callback, *arguments, **options)
        self._timers.add(timer)
        return timer

    @property
    def timers(self) -> int:
        """How many timers run."""
        return sum(not timer.cancelled() and timer.when() > self.time() for timer in self._timers)
