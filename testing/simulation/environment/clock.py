"""The clock of a simulation: it follows the virtual time of its event loop, and may be set."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from ...generation.values import NOON


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
