"""The port through which the engine tells the time and waits. Tests replace the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...

    async def sleep_until(self, due: datetime) -> None:
        """Wait until `due`; return at once if it lies in the past."""
        ...


class SystemClock:
    """The clock of the operating system. A wait is measured on the monotonic clock, so that setting the time of day
    neither prolongs nor shortens it."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    async def sleep_until(self, due: datetime) -> None:
        """Wait until `due`; return at once if it lies in the past."""
        await asyncio.sleep(max(0.0, (due - self.now()).total_seconds()))
