"""The port through which the engine tells the time and waits, and the performer of timers, which waits through it.

Tests replace the clock, so that an hour passes at once.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from ..states.effects import StartTimer
from ..states.events import Answer, DeadlineReached, RetryDue
from ..states.values.value import sooner
from .context import EffectContext


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


_ANSWERS: dict[str, type[RetryDue | DeadlineReached]] = {"retry_due": RetryDue, "deadline_reached": DeadlineReached}


class TimerPerformer:
    """Carries out `StartTimer`: waits until the timer is due, and answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, effect: StartTimer, context: EffectContext) -> Answer:
        """Answer when the timer is due, after no more than the time that was agreed: the moment may be far ahead if the
        clock was set back since."""
        await self._clock.sleep_until(sooner(effect.due, self._clock.now(), context.longest_wait))
        return _ANSWERS[effect.wakes](effect_id=effect.effect_id, at=self._clock.now())
