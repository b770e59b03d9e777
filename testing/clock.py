"""A clock that a test moves by hand, so that an hour's wait takes no time and ends exactly when it should.

    clock = ManualClock()
    async with Engine.open("sqlite://", model=llm, clock=clock) as engine:
        ...
        await clock.until_asleep()    # a timer was started
        await clock.advance(600)      # ten minutes pass

What an engine does by its clock (deadlines of questions, approvals and cancels, waits between attempts) follows it.
Timeouts of models and tools are measured by the event loop and do not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from ..states.values.value import later

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""When a clock starts that is not told otherwise."""

ROUNDS = 50
"""How often the tasks that were woken get their turn before time moves on. Ours: a chain of as many tasks, each waking
the next."""


@dataclass(eq=False)
class _Sleeper:
    due: datetime
    woken: asyncio.Future[None]


class ManualClock:
    """A `Clock` whose time moves only when a test says so, and never backwards.

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
        """When those who sleep are due, the soonest first."""
        return tuple(sorted(sleeper.due for sleeper in self._sleepers))

    async def sleep_until(self, due: datetime) -> None:
        """Return when the clock was moved to `due`; a moment that is past only lets other tasks have their turn."""
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
        """Return when at least so many sleep.

        Wait for this before you move the clock past a timer that other threads have a part in, as a store has: what
        was not started yet would begin at the later time.
        """
        while len(self._sleepers) < count:
            self._fell_asleep.clear()
            await self._fell_asleep.wait()

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; see `advance_to`. Raises ValueError for less than none."""
        if not seconds >= 0:
            raise ValueError("A clock does not run backwards.")
        await self.advance_to(later(self._now, seconds))

    async def advance_to(self, moment: datetime) -> None:
        """Move the clock to this moment, stopping wherever somebody is due.

        Sleepers wake in the order in which they are due, those due together in the order in which they fell asleep.
        At each stop the clock shows that very moment and the tasks that were woken run on, so one that falls asleep
        again and is due before `moment` wakes again, too. What tasks hand to other threads is not waited for.

        Raises ValueError for a moment that is past.
        """
        moment = _in_utc(moment)
        if moment < self._now:
            raise ValueError("A clock does not run backwards.")
        await _let_tasks_run()  # who was about to sleep does so by the time before
        while self._sleepers and (due := self.sleepers[0]) <= moment:
            self._now = max(self._now, due)
            self._wake()
            await _let_tasks_run()
        self._now = max(self._now, moment)

    def _wake(self) -> None:
        """Wake all who are due now."""
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
