"""Brings deliveries to the channels, each until it has arrived.

What a channel does not take stays at the head of its line and is tried again, later each time; what comes behind it
waits, so that people hear things in the order in which they were said. Other channels, and the conversation itself, go
on meanwhile. What has arrived is noted in the outbox; what has not is still there when the process ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import cast

from ...states.errors import ConfigurationError
from ...states.values.value import later
from ..clock import Clock
from ..receipts import Receipts
from ..text import encodable
from .attempt import ATTEMPT, GRACE, attempt
from .port import Channel, Delivery

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between attempts; doubled each time. Ours."""

DOUBLINGS = 6
"""How often a wait is doubled at most: it has reached the longest one, and a channel may be down for weeks."""

Attempt = Callable[[Channel, Delivery], Awaitable[str | None]]
"""One attempt to hand over: None if the channel took it, else why not."""

LAST_ATTEMPT = ATTEMPT + GRACE
"""Seconds that what was never tried gets when the engine closes: as long as one attempt takes at most. Ours."""

CLOSING_GRACE = 1.0
"""Seconds that attempts get to stop when the engine closes. Ours."""


@dataclass
class PendingDelivery:
    """A delivery on its way to one channel. `tell` shows whoever watches how an attempt ended: why it failed, or
    None if the channel took the delivery. `attempts` are those that failed, and `due` is when the next one comes."""

    delivery: Delivery
    effect_id: int
    receipts: Receipts
    tell: Callable[[str | None], None]
    attempts: int = 0
    due: datetime | None = None
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class DeliveryDispatcher:
    """The lines of all conversations, one for each channel. `trying` takes the place of the plain attempt.

    Raises `ConfigurationError` for channels that are none, and for two of one name.
    """

    def __init__(self, channels: Iterable[Channel], clock: Clock, trying: Attempt | None = None) -> None:
        self._channels = _by_name(channels)
        self._clock = clock
        self._trying = trying
        self._lines: dict[tuple[str, str], deque[PendingDelivery]] = {}
        self._carrying: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the channels: a delivery goes to each of them."""
        return tuple(self._channels)

    async def hand_in(self, parcels: Iterable[tuple[str, PendingDelivery]]) -> None:
        """Put parcels in the lines of the channels named, and return when each was tried once, or stands behind one
        that was tried before."""
        tried = [self._queue(target, parcel) for target, parcel in parcels]
        await asyncio.gather(*(event.wait() for event in tried))

    def take_up(self, target: str, parcel: PendingDelivery) -> None:
        """Put a parcel that an earlier process left in the line of its channel."""
        self._queue(target, parcel)

    async def drop(self, conversation_id: str) -> None:
        """Carry nothing more of this conversation."""
        await self._stop([key for key in self._carrying if key[0] == conversation_id])

    async def tried(self) -> None:
        """Return when each parcel so far was tried once, in this process or before, or stands behind one that was."""
        fresh = [takewhile(lambda parcel: not parcel.attempts, line) for line in self._lines.values()]
        await asyncio.gather(*(parcel.tried.wait() for line in fresh for parcel in line))

    async def close(self) -> None:
        """Carry nothing more, once each parcel was tried. What has not arrived stays in the outbox."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.tried(), LAST_ATTEMPT)
        await self._stop(list(self._carrying))

    def _queue(self, target: str, parcel: PendingDelivery) -> asyncio.Event:
        key = (parcel.delivery.conversation_id, target)
        line = self._lines.setdefault(key, deque())
        if any(before.attempts for before in line):
            parcel.tried.set()
        line.append(parcel)
        if key not in self._carrying:
            self._carrying[key] = asyncio.ensure_future(self._carry(key))
        return parcel.tried

    async def _carry(self, key: tuple[str, str]) -> None:
        line, target = self._lines[key], key[1]
        try:
            while line:
                await self._bring(target, line)
        finally:
            self._put_down(key, line)

    async def _bring(self, target: str, line: deque[PendingDelivery]) -> None:
        """Try the first parcel of the line once, when its time has come."""
        parcel = line[0]
        if parcel.due is not None:
            # What an earlier process noted may lie far ahead: a clock was set back since.
            await self._clock.sleep_until(min(parcel.due, later(self._clock.now(), LONGEST_WAIT)))
        fault = await (self._trying or attempt)(self._channels[target], parcel.delivery)
        if fault is None:
            line.popleft()
            if parcel.attempts:
                for waiting in line:
                    waiting.tried = asyncio.Event()  # nothing that failed stands before it any longer
            parcel.receipts.acknowledge(parcel.effect_id, target)
        else:
            wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(parcel.attempts, DOUBLINGS))
            parcel.due = later(self._clock.now(), wait)
            parcel.attempts += 1
            parcel.receipts.postpone(parcel.effect_id, target, parcel.attempts, parcel.due)
            for waiting in line:
                waiting.tried.set()
        parcel.tell(fault)
        parcel.tried.set()

    async def _stop(self, keys: list[tuple[str, str]]) -> None:
        tasks = [self._carrying[key] for key in keys]
        for key, task in zip(keys, tasks, strict=True):
            task.cancel()
            self._put_down(key, self._lines[key])  # also where the task has not begun, and so never ends its line
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_GRACE)

    def _put_down(self, key: tuple[str, str], line: deque[PendingDelivery]) -> None:
        """Carry no more of this line; nobody waits for it any longer."""
        for parcel in line:
            parcel.tried.set()
        if self._lines.get(key) is line:
            del self._lines[key], self._carrying[key]


def _by_name(channels: Iterable[Channel]) -> dict[str, Channel]:
    if not isinstance(channels, Iterable):
        raise ConfigurationError("The channels are given as a list.")
    by_name: dict[str, Channel] = {}
    given: tuple[object, ...] = tuple(channels)
    for channel in given:
        name = _name_of(channel)
        if name in by_name:
            raise ConfigurationError("Two channels have the same name.")
        by_name[name] = cast(Channel, channel)
    return by_name


def _name_of(channel: object) -> str:
    """Its name, which is read once: under it stands in the outbox what is for this channel."""
    if isinstance(channel, type) or not isinstance(channel, Channel) or not isinstance(name := channel.name, str):
        raise ConfigurationError("A channel is an object with a name and the method `deliver`.")
    if encodable(name) != name:
        raise ConfigurationError("The name of a channel holds half a character (a lone surrogate).")
    return name
