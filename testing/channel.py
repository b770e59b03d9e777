"""A way to the user that remembers what went along it: a double of the `Channel` port.

channel = RecordingChannel()
async with Engine.open("sqlite://", model=llm, channels=[channel]) as engine: ...
assert channel.texts == ["Table 4 is free."]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..effects.channels.port import Delivery


class RecordingChannel:
    """Keeps every delivery that it took, in order.

    `function`, if given, is called with each delivery first; it may be a coroutine function, so a test can hold a
    delivery back, and what it raises says that the delivery failed, which then is in `failed`.
    """

    def __init__(self, function: Callable[[Delivery], Any] | None = None, *, name: str = "recording") -> None:
        self.name = name
        self.deliveries: list[Delivery] = []
        self.failed: list[Delivery] = []
        self._function = function

    @property
    def texts(self) -> list[str]:
        """What the user received."""
        return [delivery.text for delivery in self.deliveries]

    async def deliver(self, delivery: Delivery) -> None:
        """Take the delivery, unless the function of this channel fails on it."""
        try:
            outcome = None if self._function is None else self._function(delivery)
            if inspect.isawaitable(outcome):
                await outcome
        except BaseException:
            self.failed.append(delivery)
            raise
        self.deliveries.append(delivery)
