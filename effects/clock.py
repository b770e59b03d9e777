"""What time it is, and waiting for a time to come: the only clock of the engine, so that tests can bring their own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """This moment, in UTC."""
        ...

    async def sleep_until(self, due: datetime) -> None:
        """Return when `due` is reached, at once if it lies in the past."""
        ...


class SystemClock:
    """The machine's clock. Once a wait has begun it is measured on the monotonic clock, so that setting the time of
    day neither stretches nor skips it."""

    def now(self) -> datetime:
        """This moment, in UTC."""
        return datetime.now(UTC)

    async def sleep_until(self, due: datetime) -> None:
        """Return when `due` is reached, at once if it lies in the past."""
        await asyncio.sleep(max(0.0, (due - self.now()).total_seconds()))
