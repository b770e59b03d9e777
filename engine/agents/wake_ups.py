"""Wakes the conversations that have a schedule: one timer for all of them.

The store knows when each conversation wakes up next, so nothing is kept in memory for one that sleeps, and what was due
while no process ran is found when an engine opens. The timer asks the store for the earliest wake-ups, requests those
that are due, and sleeps until the next one.

A clock that was set back, or ran ahead when an earlier process wrote, leaves moments that lie further ahead than the
schedules say. The timer notices that the clock was set back, and has each schedule come at its next moment from now.

Several engines over one store may find the same wake-up. The machine takes it once: the second one is no longer what
the conversation waits for. Where several processes share a store, that one says when a wake-up is due, and whoever
looks after the conversation then wakes it; there is no timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...effects.retry_queues import wait_after
from ...persistence.summaries import ConversationFilter
from ...states.errors import EngineClosed, Refused, TurnwiseError, UnknownConversation
from ...states.events import Event, ScheduleChanged, WakeUp
from ...states.states import State
from ...states.step import Step
from ...states.values.value import later
from ..loop import Loop
from ..ports import Observer
from ..registry import ConversationRegistry
from ..schedules import moment_set_right, next_moment

if TYPE_CHECKING:
    from ...persistence.ports import Store

logger: logging.Logger = logging.getLogger("turnwise.agents")

BATCH = 64
"""How many conversations are woken at once: enough to keep a disk busy, few enough that the first of them need not wait
for all."""

LONGEST_SLEEP = timedelta(seconds=60)
"""After this the store is asked again, although nothing is due: the computer may have slept meanwhile, and another
engine may have changed a schedule."""

REQUEST_TIMEOUT = 10.0
"""Seconds until a conversation that does not take its wake-up is left for later, so that it does not hold up others."""

FILLED = frozenset({"event_id", "next_wake", "text"})
"""The fields of a wake-up in which two engines may differ that found it at different moments."""

ALL = 1_000_000
"""How many schedules are looked at when the clock was set back: as good as all."""

JITTER = timedelta(seconds=1)
"""A clock that is behind by less was not set back: it is corrected all the time, and a timer may end early."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds until a wake-up that was not taken is requested again; doubled each time."""


@dataclass(frozen=True)
class _Failure:
    """A wake-up, or a look at the store, that failed so many times, and when it is tried again."""

    attempts: int
    again: datetime

    @classmethod
    def after(cls, before: _Failure | None, now: datetime) -> _Failure:
        attempts = 1 if before is None else before.attempts + 1
        return cls(attempts, later(now, wait_after(attempts, FIRST_WAIT, LONGEST_WAIT)))


class WakeUps:
    """The timer of an engine. It runs only while some conversation has a schedule. It observes steps, in order to learn
    of wake-ups that are earlier than those it knows of. Without a timer it wakes only what it is told to."""

    def __init__(
        self, store: Callable[[], Store], registry: ConversationRegistry, clock: Clock, *, has_timer: bool = True
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._has_timer = has_timer
        self._timer: asyncio.Task[None] | None = None
        self._sleep: asyncio.Timeout | None = None
        self._until: datetime | None = None
        self._is_changed = False
        self._is_closed = False
        self._failures: dict[str, _Failure] = {}
        """The conversations whose wake-up is due and was not taken."""
        self._store_failure: _Failure | None = None
        self._ahead: dict[str, datetime] = {}
        """The conversations whose wake-up may lie too far ahead, because the clock was set back."""
        self._ahead_failure: _Failure | None = None
        self._is_set_back = False

    async def look_at_clock(self) -> None:
        """Find out whether the newest step in the store lies ahead, before this engine stores any."""
        try:
            newest = await self._store().list(ConversationFilter(limit=1)) if await self._store().scheduled(1) else ()
        except Exception as error:
            logger.warning("The scheduled wake-ups cannot be read: %s", _reason(error))
            newest = ()
        self._is_set_back = any(one.updated_at - JITTER > self._clock.now() for one in newest)

    def open(self) -> None:
        """Begin with what is stored. Does not wait."""
        self._begin()

    def note(self, wake: datetime) -> None:
        """A conversation wakes up at this moment, which may be earlier than all others."""
        self._begin()
        if self._sleep is None:
            self._is_changed = True
        elif self._until is not None and wake < self._until:
            sleep, self._sleep = self._sleep, None
            sleep.reschedule(asyncio.get_running_loop().time())

    async def wake(self, conversation_id: str, due: datetime) -> bool:
        """Request the wake-up that is due at this moment. Returns whether it was taken; it is not if the conversation
        has no time for it, if its schedule has changed meanwhile, or if another engine was faster. Raises
        `StoreError`, and `Refused` with `storage`; `InvalidInput` and `ConfigurationError` if its schedule cannot be
        read here."""
        try:
            return await self._request(conversation_id, due)
        except Refused as refused:
            if refused.code == "storage":
                raise
            return False

    async def stop(self) -> None:
        """Wake nothing more."""
        self._is_closed = True
        if (timer := self._timer) is not None:
            timer.cancel()
            await asyncio.wait([timer])

    # --- as an observer

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """See `Observer`."""
        wake = step.state.book.wake
        if wake is not None and wake != before.book.wake:
            self.note(wake)

    # --- the timer

    def _begin(self) -> None:
        if self._timer is None and self._has_timer and not self._is_closed:
            self._timer = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while True:
                self._is_changed = False
                until = await self._look()
                if self._is_changed:
                    continue
                if until is None:
                    return
                await self._sleep_until(until)
        finally:
            self._timer = None

    async def _sleep_until(self, until: datetime) -> None:
        self._until, at_least = until, self._clock.now()
        try:
            async with asyncio.timeout(None) as self._sleep:
                await self._clock.sleep_until(until)
            at_least = until
        except TimeoutError:
            pass  # another wake-up is earlier
        finally:
            self._sleep = None
        self._is_set_back = self._is_set_back or self._clock.now() < at_least - JITTER

    async def _look(self) -> datetime | None:
        """Request what is due. Returns when to look again, or None if nothing is scheduled."""
        try:
            await self._set_right()
            # Those that failed are the earliest and must not hide the others.
            listed = await self._store().scheduled(BATCH + len(self._failures))
        except Exception as error:
            logger.warning("The scheduled wake-ups cannot be read: %s", _reason(error))
            self._store_failure = _Failure.after(self._store_failure, self._clock.now())
            return self._store_failure.again
        self._store_failure = None
        now = self._clock.now()
        self._failures = {one: self._failures[one] for one, wake in listed if one in self._failures and wake <= now}
        moments = {one: max(wake, self._failures[one].again) if one in self._failures else wake for one, wake in listed}
        due = [(one, wake) for one, wake in listed if moments[one] <= now]
        if due:
            await asyncio.gather(*(self._wake(one, wake) for one, wake in due))
            return now
        return min((*moments.values(), later(now, LONGEST_SLEEP.total_seconds()))) if moments else None

    async def _set_right(self) -> None:
        """After the clock was set back, have no schedule come later than its next moment from now. What cannot be set
        right is tried again later. Raises what the store raises."""
        if self._is_set_back:
            self._ahead |= dict(await self._store().scheduled(ALL))
            self._failures.clear()
            self._ahead_failure, self._is_set_back = None, False
        elif self._ahead_failure is not None and self._clock.now() < self._ahead_failure.again:
            return
        ahead = iter(list(self._ahead.items()))
        while batch := list(islice(ahead, BATCH)):
            await asyncio.gather(*(self._bring_forward(one, wake) for one, wake in batch))
        self._ahead_failure = _Failure.after(self._ahead_failure, self._clock.now()) if self._ahead else None

    async def _bring_forward(self, conversation_id: str, wake: datetime) -> None:
        """Store the next moment of this schedule if it is earlier than `wake`."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await self._request_earlier(conversation_id, wake)
        except (EngineClosed, UnknownConversation):
            pass  # closed or deleted meanwhile
        except Exception as error:
            logger.warning("The schedule of %s waits for a clock that ran ahead: %s", conversation_id, _reason(error))
            return
        del self._ahead[conversation_id]

    async def _request_earlier(self, conversation_id: str, wake: datetime) -> None:
        loop = await self._registry.get_loop(conversation_id)
        await loop.catch_up()
        schedule, now = loop.projection.context.schedule, self._clock.now()
        if schedule is None or loop.state.book.wake != wake:
            return
        if (earlier := moment_set_right(schedule, wake, now)) < wake:
            event_id = f"wake-{wake.isoformat()}-{loop.state.book.seq}-earlier"
            event = ScheduleChanged(event_id=event_id, at=now, schedule=schedule, next_wake=earlier)
            await loop.request(event, frozenset({"next_wake"}))

    async def _wake(self, conversation_id: str, due: datetime) -> None:
        """Request a wake-up. One that is not taken is requested again later."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                is_taken = await self._request(conversation_id, due)
        except (EngineClosed, UnknownConversation):
            is_taken = False  # closed or deleted meanwhile
        except Exception as error:
            logger.warning("The conversation %s could not be woken: %s", conversation_id, _reason(error))
            is_taken = False
        if is_taken:
            self._failures.pop(conversation_id, None)
        else:
            self._failures[conversation_id] = _Failure.after(self._failures.get(conversation_id), self._clock.now())

    async def _request(self, conversation_id: str, due: datetime) -> bool:
        """Request the wake-up, and return whether it was taken. It is not taken if the schedule has changed meanwhile,
        or another engine was faster."""
        loop = await self._registry.get_loop(conversation_id)
        if loop.state.book.wake != due:
            await loop.catch_up()  # another engine has changed it
        event_id = f"wake-{due.isoformat()}"
        if await self._is_woken(loop, due, event_id):
            return True
        # After the time of day was set back, the same moment comes again, and its id was used before.
        return await self._is_woken(loop, due, f"{event_id}-{loop.state.book.seq}")

    async def _is_woken(self, loop: Loop, due: datetime, event_id: str) -> bool:
        schedule = loop.projection.context.schedule
        if schedule is None or loop.state.book.wake != due:
            return False
        now = self._clock.now()
        following = next_moment(schedule, due, now)
        event = WakeUp(event_id=event_id, at=now, due=due, next_wake=following, text=schedule.task)
        return not (await loop.request(event, FILLED)).step.ignored


def _reason(error: Exception) -> str:
    if isinstance(error, TurnwiseError):
        return error.sentence
    return "it took too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"


_FILLS: type[Observer] = WakeUps
