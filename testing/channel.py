"""A channel that records what it delivers: a double of the `Channel` port.

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
    """Records every delivery, in order.

    `function`, if given, is called with each delivery first. It may be a coroutine function, so that a test can hold a
    delivery back. If it raises, the delivery has failed and is recorded in `failed`.
    """

    def __init__(self, function: Callable[[Delivery], Any] | None = None, *, name: str = "recording") -> None:
        self.name = name
        self.deliveries: list[Delivery] = []
        self.failed: list[Delivery] = []
        self._function = function

    @property
    def texts(self) -> list[str]:
        """The texts that the user received."""
        return [delivery.text for delivery in self.deliveries]

    async def deliver(self, delivery: Delivery) -> None:
        """Record the delivery, unless the function of this channel raises."""
        try:
            outcome = None if self._function is None else self._function(delivery)
            if inspect.isawaitable(outcome):
                await outcome
        except BaseException:
            self.failed.append(delivery)
            raise
        self.deliveries.append(delivery)
