"""Delivers through the channels, and repeats each delivery until it has arrived.

Each channel has a queue for each conversation. A delivery that the channel does not take stays at the head of its queue
and is tried again, after longer and longer waits. The deliveries behind it wait, so that people receive them in the
order in which they were said. Other channels, and the conversation itself, go on meanwhile. The outbox records which
deliveries have arrived; the others are still in it when the process ends.
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
from ...states.values.surrogates import encodable
from ...states.values.value import later
from ..clock import Clock
from ..receipts import Receipts
from .attempt import ATTEMPT_TIMEOUT, GRACE, attempt
from .port import Channel, Delivery

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between attempts. The wait is doubled after each failure: a short disturbance is overcome soon, and a channel
that is down for long is not flooded."""

MAX_DOUBLINGS = 6
"""After so many failures the wait is the longest one. A channel may be down for weeks, and 2 ** n would become huge."""

Attempt = Callable[[Channel, Delivery], Awaitable[str | None]]
"""Makes one attempt. Returns None if the channel has taken the delivery, otherwise a sentence that says why not."""

CLOSING_TIMEOUT = ATTEMPT_TIMEOUT + GRACE
"""Seconds that deliveries which were never tried get when the engine closes: as long as one attempt takes at most."""

CLOSING_GRACE = 1.0
"""Seconds that attempts under way get to stop when the engine closes."""

_Key = tuple[str, str]
"""A conversation and a channel."""


@dataclass
class PendingDelivery:
    """A delivery on its way to one channel.

    `report` is called after each attempt with the reason why it failed, or None if the channel has taken the delivery.
    `attempts` are those that failed, and `due` is when the next one is made. `tried` is set when the delivery was tried
    once, or waits behind one that has failed.
    """

    delivery: Delivery
    effect_id: int
    receipts: Receipts
    report: Callable[[str | None], None]
    attempts: int = 0
    due: datetime | None = None
    tried: asyncio.Event = field(default_factory=asyncio.Event)


class DeliveryDispatcher:
    """The queues of all conversations, one for each channel. `make_attempt` replaces `attempt.attempt`.

    Raises `ConfigurationError` for objects that are not channels, and for two channels of one name.
    """

    def __init__(self, channels: Iterable[Channel], clock: Clock, make_attempt: Attempt | None = None) -> None:
        self._channels = _by_name(channels)
        self._clock = clock
        self._make_attempt = make_attempt
        self._queues: dict[_Key, deque[PendingDelivery]] = {}
        self._workers: dict[_Key, asyncio.Task[None]] = {}

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the channels. Each delivery goes to all of them."""
        return tuple(self._channels)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels, in the order of `targets`."""
        return tuple(self._channels.values())

    async def submit(self, deliveries: Iterable[tuple[str, PendingDelivery]]) -> None:
        """Queue each delivery for the channel named beside it, and return when each was tried once, or waits behind one
        that has failed."""
        events = [self._enqueue(target, pending) for target, pending in deliveries]
        await asyncio.gather(*(event.wait() for event in events))

    def resume(self, target: str, pending: PendingDelivery) -> None:
        """Queue a delivery that an earlier process left in the outbox. Does not wait."""
        self._enqueue(target, pending)

    async def drop(self, conversation_id: str) -> None:
        """Stop delivering for this conversation."""
        await self._stop([key for key in self._workers if key[0] == conversation_id])

    async def wait_until_tried(self) -> None:
        """Return when each queued delivery was tried once, by this process or an earlier one, or waits behind one that
        has failed."""
        untried = [takewhile(lambda pending: not pending.attempts, queue) for queue in self._queues.values()]
        await asyncio.gather(*(pending.tried.wait() for queue in untried for pending in queue))

    async def close(self) -> None:
        """Stop delivering, once each delivery was tried. Those that have not arrived stay in the outbox."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait_until_tried(), CLOSING_TIMEOUT)
        await self._stop(list(self._workers))

    def _enqueue(self, target: str, pending: PendingDelivery) -> asyncio.Event:
        key = (pending.delivery.conversation_id, target)
        queue = self._queues.setdefault(key, deque())
        if any(earlier.attempts for earlier in queue):
            pending.tried.set()
        queue.append(pending)
        if key not in self._workers:
            self._workers[key] = asyncio.ensure_future(self._work(key))
        return pending.tried

    async def _work(self, key: _Key) -> None:
        queue, target = self._queues[key], key[1]
        try:
            while queue:
                await self._try_first(target, queue)
        finally:
            self._remove(key, queue)

    async def _try_first(self, target: str, queue: deque[PendingDelivery]) -> None:
        """Try the first delivery of the queue once, when it is due."""
        pending = queue[0]
        if pending.due is not None:
            # A time that an earlier process stored may be far ahead if the clock was set back since.
            await self._clock.sleep_until(min(pending.due, later(self._clock.now(), LONGEST_WAIT)))
        fault = await (self._make_attempt or attempt)(self._channels[target], pending.delivery)
        if fault is None:
            self._acknowledge(target, queue)
        else:
            self._postpone(target, queue)
        pending.report(fault)
        pending.tried.set()

    def _acknowledge(self, target: str, queue: deque[PendingDelivery]) -> None:
        pending = queue.popleft()
        if pending.attempts:
            for waiting in queue:
                waiting.tried = asyncio.Event()  # no failed delivery is in front of it any longer
        pending.receipts.acknowledge(pending.effect_id, target)

    def _postpone(self, target: str, queue: deque[PendingDelivery]) -> None:
        pending = queue[0]
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(pending.attempts, MAX_DOUBLINGS))
        pending.due = later(self._clock.now(), wait)
        pending.attempts += 1
        pending.receipts.postpone(pending.effect_id, target, pending.attempts, pending.due)
        for waiting in queue:
            waiting.tried.set()

    async def _stop(self, keys: list[_Key]) -> None:
        workers = [self._workers[key] for key in keys]
        for key, worker in zip(keys, workers, strict=True):
            worker.cancel()
            self._remove(key, self._queues[key])  # a task that has not begun yet does not run its `finally`
        if workers:
            await asyncio.wait(workers, timeout=CLOSING_GRACE)

    def _remove(self, key: _Key, queue: deque[PendingDelivery]) -> None:
        """Forget this queue, and release those who wait for it."""
        for pending in queue:
            pending.tried.set()
        if self._queues.get(key) is queue:
            del self._queues[key], self._workers[key]


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
    """The name of the channel, which is read only once: the outbox stores deliveries under it."""
    if isinstance(channel, type) or not isinstance(channel, Channel) or not isinstance(name := channel.name, str):
        raise ConfigurationError("A channel is an object with a name and the method `deliver`.")
    if encodable(name) != name:
        raise ConfigurationError("The name of a channel holds half a character (a lone surrogate).")
    return name
