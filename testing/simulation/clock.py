"""The clock on the wall of a simulation: it follows the virtual time of its loop, and may be set."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from ..clock import NOON


class VirtualClock:
    """A `Clock` in virtual time. Like the machine's own it measures waits on a clock that nobody sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._set_by = 0.0

    def now(self) -> datetime:
        """This moment, in UTC."""
        return NOON + timedelta(seconds=self._loop.time() + self._set_by)

    def monotonic(self) -> float:
        """Seconds by the clock that nobody sets."""
        return self._loop.time()

    def set_by(self, seconds: float) -> None:
        """Set the clock forward, or back, while nothing else changes."""
        self._set_by += seconds

    async def sleep_until(self, due: datetime) -> None:
        """Return when `due` is reached, at once if it lies in the past."""
        await asyncio.sleep(max(0.0, (due - self.now()).total_seconds()))
