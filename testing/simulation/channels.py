"""The ways to people in a simulation: channels that fail, hang, and say that they failed when they did not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from .random_source import RandomSource
from .story import Story

if TYPE_CHECKING:
    from ...effects.channels.port import Delivery

Sent = tuple[str, str, int]
"""A delivery: its conversation, whom it is for, and its effect."""


class Line:
    """A `Channel`, the same for all engines of a simulation. Once it is `calm` it works.

    `settled` says what was taken out of the outbox for good: none of it may be brought again.
    """

    def __init__(self, name: str, dice: RandomSource, story: Story, settled: Callable[[], Collection[Sent]]) -> None:
        self.name = name
        self.calm = False
        self.arrived: list[tuple[int, Sent]] = []
        """What has reached people, in order, with the number of the engine that brought it."""
        self.engine = 0
        self._dice = dice
        self._failing = dice.pick((0.1, 0.3, 0.9))
        self._story = story
        self._settled = settled

    async def deliver(self, delivery: Delivery) -> None:
        """Hand it over, or not, or both."""
        conversation_id, _, effect_id = delivery.key.rpartition("/")
        sent = (conversation_id, self.name, int(effect_id))
        engine = self.engine
        if sent in self._settled():
            self._story.blame(f"{sent[2]} is brought to {self.name} again, and its receipt is stored")
        if self.calm:
            self._take(engine, sent)
            return
        await self._work()
        if self._dice.chance(self._failing):
            raise ConnectionError("the line is down")
        self._take(engine, sent)
        if self._dice.chance(0.1):
            raise ConnectionError("the line broke behind the last word")

    def _take(self, engine: int, sent: Sent) -> None:
        self.arrived.append((engine, sent))
        self._story.tell(self.name, f"has {sent[2]}")

    async def _work(self) -> None:
        """Take a while, or hang, and then perhaps not even stop when told to."""
        if not self._dice.chance(0.05):
            await asyncio.sleep(self._dice.seconds())
            return
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            if self._dice.chance(0.3):
                await asyncio.sleep(3)
            raise
