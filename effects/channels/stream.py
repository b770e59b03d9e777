"""Hands what is said to whoever listens in the same program: a web page's connection, another part of an application.

Any number of subscribers listen, each at its own pace and with a memory of its own. The memory has a bound, so that one
that stands still does not fill the program's; what then does not fit is not lost in silence: the subscriber is told how
much it was, and can read it again from `Conversation.updates`, which misses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self
from weakref import WeakSet

from ...states.errors import ConfigurationError, TurnwiseError
from .port import Delivery

MEMORY = 256
"""How many deliveries wait for a subscriber that does not take them. Ours: more than anybody listens to at once."""


class Lagged(TurnwiseError):
    """A subscriber was too slow for its memory: the oldest `missed` deliveries that waited for it were dropped. Go on
    iterating for those that are left."""

    def __init__(self, missed: int) -> None:
        super().__init__(f"The subscriber was too slow, and missed {missed} of the deliveries.")
        self.missed = missed


class StreamChannel:
    """A channel to subscribe to.

    A delivery is handed over when it waits in the memory of everybody who is subscribed; without subscribers that is at
    once. All subscribers live in the event loop of the engine.
    """

    def __init__(self, *, name: str = "stream") -> None:
        self.name = name
        # A subscriber that was dropped without a word must not collect deliveries for ever.
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    def subscribe(self, conversation_id: str | None = None, *, memory: int = MEMORY) -> Subscription:
        """Listen from now on, to one conversation or to all of them, with a memory for so many deliveries.

        Raises `ConfigurationError` for a memory that holds none.
        """
        given: object = memory
        if not isinstance(given, int) or given < 1:
            raise ConfigurationError("The memory of a subscriber holds at least one delivery.")
        subscription = Subscription(conversation_id, memory)
        self._subscriptions.add(subscription)
        return subscription

    async def deliver(self, delivery: Delivery) -> None:
        """Hand it to all subscribers; nobody is waited for."""
        for subscription in tuple(self._subscriptions):
            subscription.offer(delivery)

    def close(self) -> None:
        """End all subscriptions: each still gives what waits in its memory."""
        for subscription in tuple(self._subscriptions):
            subscription.close()


class Subscription:
    """What one subscriber listens to: an async iterator of deliveries. Get it from `StreamChannel.subscribe`.

    In the order in which they came; after a crash a delivery may come again, under the same `key`. Close it, or leave
    its `with` block, to listen no longer.
    """

    def __init__(self, conversation_id: str | None, memory: int) -> None:
        self._conversation_id = conversation_id
        self._waiting: deque[Delivery] = deque(maxlen=memory)
        self._missed = 0
        self._changed = asyncio.Event()
        self._closed = False

    def offer(self, delivery: Delivery) -> None:
        """Put a delivery into the memory, if it is for this subscriber."""
        if self._closed or self._conversation_id not in (None, delivery.conversation_id):
            return
        self._missed += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(delivery)
        self._changed.set()

    def close(self) -> None:
        """Listen no longer. What waits still comes, then the iteration ends."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        """The next delivery. Raises `Lagged` once where some were dropped."""
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
