"""A clock that a test moves by hand: an hour's wait takes no time, and ends exactly when the test says so.

    clock = ManualClock()
    async with Engine.open("sqlite://", model=llm, clock=clock) as engine:
        ...
        await clock.until_asleep()    # a timer has been started
        await clock.advance(600)      # ten minutes pass

The deadlines of questions, approvals and cancels and the waits between attempts follow the clock of the engine. The
timeouts of models and tools do not: they are measured by the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from ..states.values.value import later
from .generation.values import NOON

ROUNDS = 50
"""How often other tasks run before time moves on: enough for a chain of as many tasks, each of which wakes the next."""


@dataclass(eq=False)
class _Sleeper:
    due: datetime
    woken: asyncio.Future[None]


class ManualClock:
    """A `Clock` whose time moves only when a test moves it, and passes only forwards. It starts at noon of 1 June 2026,
    UTC, or at `start`. `set_to` sets it, also back.

    Raises ValueError for a moment without a time zone.
    """

    def __init__(self, start: datetime = NOON) -> None:
        self._now = _in_utc(start)
        self._sleepers: list[_Sleeper] = []
        self._fell_asleep = asyncio.Event()

    def now(self) -> datetime:
        """This moment, in UTC."""
        return self._now

    @property
    def sleepers(self) -> tuple[datetime, ...]:
        """The moments at which the sleeping tasks are due, the soonest first."""
        return tuple(sorted(sleeper.due for sleeper in self._sleepers))

    async def sleep_until(self, due: datetime) -> None:
        """Return once the clock has been moved to `due`. If that moment is past, only let other tasks run."""
        due = _in_utc(due)
        if due <= self._now:
            await asyncio.sleep(0)
            return
        sleeper = _Sleeper(due, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._fell_asleep.set()
        try:
            await sleeper.woken
        finally:
            if sleeper in self._sleepers:  # the task was cancelled in its sleep
                self._sleepers.remove(sleeper)

    async def until_asleep(self, count: int = 1) -> None:
        """Return when at least so many tasks sleep.

        Wait for this before you move the clock past a timer whose start involves other threads, such as a store's: a
        timer that has not been started yet would start at the later time.
        """
        while len(self._sleepers) < count:
            self._fell_asleep.clear()
            await self._fell_asleep.wait()

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; see `advance_to`. Raises ValueError if they are negative."""
        if not seconds >= 0:
            raise ValueError("A clock does not run backwards.")
        await self.advance_to(later(self._now, seconds))

    async def advance_to(self, moment: datetime) -> None:
        """Move the clock to this moment, and stop at each moment at which a sleeping task is due.

        Tasks wake in the order in which they are due, and those that are due together in the order in which they fell
        asleep. At each stop the clock shows that very moment and the woken tasks run on, so a task that falls asleep
        again and is due before `moment` wakes again, too. Work in other threads is not waited for.

        Raises ValueError for a moment that is past.
        """
        moment = _in_utc(moment)
        if moment < self._now:
            raise ValueError("A clock does not run backwards.")
        await _let_tasks_run()  # a task that was about to sleep does so by the time before
        while self._sleepers and (due := self.sleepers[0]) <= moment:
            self._now = max(self._now, due)
            self._wake()
            await _let_tasks_run()
        self._now = max(self._now, moment)

    def set_to(self, moment: datetime) -> None:
        """Set the clock, forward or back, as an administrator does. No time passes: tasks that sleep do so for as long
        as before, as with the clock of the system."""
        moment = _in_utc(moment)
        for sleeper in self._sleepers:
            sleeper.due = later(moment, (sleeper.due - self._now).total_seconds())
        self._now = moment

    def _wake(self) -> None:
        """Wake every task that is due now."""
        due = sorted((sleeper for sleeper in self._sleepers if sleeper.due <= self._now), key=lambda each: each.due)
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.due > self._now]
        for sleeper in due:
            if not sleeper.woken.done():
                sleeper.woken.set_result(None)


async def _let_tasks_run() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("A moment needs a time zone.")
    return moment.astimezone(UTC)
