"""Delivers to subscribers in the same program, such as the connection of a web page.

There may be any number of subscribers. Each has a buffer of its own and reads at its own pace. The buffer is limited,
so that a subscriber that stops reading does not exhaust the program's memory. If its buffer is full, the oldest
deliveries are dropped, and the subscriber learns how many; it can read them from `Conversation.updates`, which misses
nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self
from weakref import WeakSet

from ...states.errors import ConfigurationError, TurnwiseError
from .port import Delivery

BUFFER_SIZE = 256
"""How many deliveries wait for a subscriber that does not read: more than a user would want to hear at once."""


class Lagged(TurnwiseError):
    """A subscriber read too slowly, and the oldest `missed` deliveries in its buffer were dropped. Continue iterating
    for the others."""

    def __init__(self, missed: int) -> None:
        super().__init__(f"The subscriber was too slow, and missed {missed} of the deliveries.")
        self.missed = missed


class StreamChannel:
    """A channel to subscribe to.

    A delivery has arrived when it is in the buffer of every subscriber; without subscribers it has arrived at once. All
    subscribers must run in the event loop of the engine.
    """

    def __init__(self, *, name: str = "stream") -> None:
        self.name = name
        # A subscriber that was forgotten without being closed must not collect deliveries for ever.
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    def subscribe(self, conversation_id: str | None = None, *, memory: int = BUFFER_SIZE) -> Subscription:
        """Subscribe from now on to one conversation, or to all of them, with a buffer for so many (`memory`)
        deliveries.

        Raises `ConfigurationError` for a buffer of less than one delivery.
        """
        if memory < 1:
            raise ConfigurationError("The buffer of a subscriber holds at least one delivery.")
        subscription = Subscription(conversation_id, memory)
        self._subscriptions.add(subscription)
        return subscription

    async def deliver(self, delivery: Delivery) -> None:
        """Put it into the buffer of every subscriber. Does not wait for any of them."""
        for subscription in tuple(self._subscriptions):
            subscription.offer(delivery)

    def close(self) -> None:
        """End all subscriptions. Each still yields what is in its buffer."""
        for subscription in tuple(self._subscriptions):
            subscription.close()


class Subscription:
    """An async iterator of deliveries, in the order in which they arrived. Get it from `StreamChannel.subscribe`.

    After a crash a delivery may be repeated, with the same `key`. Close the subscription, or leave its `with` block, to
    end it.
    """

    def __init__(self, conversation_id: str | None, memory: int) -> None:
        self._conversation_id = conversation_id
        self._waiting: deque[Delivery] = deque(maxlen=memory)
        self._missed = 0
        self._changed = asyncio.Event()
        self._closed = False

    def offer(self, delivery: Delivery) -> None:
        """Put a delivery into the buffer if it belongs to a conversation of this subscriber."""
        if self._closed or self._conversation_id not in (None, delivery.conversation_id):
            return
        self._missed += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(delivery)
        self._changed.set()

    def close(self) -> None:
        """Take no more deliveries. The iteration ends after those in the buffer."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        """Return the next delivery. Raises `Lagged`, once, if deliveries in front of it were dropped."""
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            raise Lagged(missed)
        return self._waiting.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
