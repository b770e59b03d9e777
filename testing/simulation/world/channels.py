"""The channels of a simulation: they fail, hang, and report a failure for what has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..environment.event_trace import EventTrace
from ..environment.random_source import RandomSource
from ..storage.storage import Delivered, Process

if TYPE_CHECKING:
    from ....effects.channels.port import Delivery


class SimulatedChannel:
    """A channel, the same for all processes of a simulation. Once it is `calm` it works.

    `settled` returns what was taken out of the outbox for good: none of it may be delivered again.
    """

    def __init__(
        self, name: str, chance: RandomSource, trace: EventTrace, settled: Callable[[], Collection[Delivered]]
    ) -> None:
        self.name = name
        self.calm = False
        self.arrived: list[tuple[str, Delivered]] = []
        """What has reached people, in order, with the name of the process that delivered it."""
        self._chance = chance
        self._failing = chance.pick((0.1, 0.3, 0.9))
        self._trace = trace
        self._settled = settled

    def of(self, process: Process) -> ChannelOfProcess:
        """This channel, as a process uses it."""
        return ChannelOfProcess(self, process)

    async def deliver(self, process: Process, delivery: Delivery) -> None:
        """Hand a delivery over, or not, or both."""
        from ....effects.context import effect_of_key

        conversation_id, effect_id = effect_of_key(delivery.key)
        delivered = (conversation_id, self.name, effect_id)
        if delivered in self._settled() and not process.is_dead:
            self._trace.report_fault(f"{effect_id} is delivered to {self.name} again, and its receipt is stored")
        if not self.calm:
            await self._work()
            if self._chance.probably(self._failing):
                raise ConnectionError("the channel is down")
        if process.is_dead:
            raise ConnectionError("the process is dead")
        self.arrived.append((process.name, delivered))
        self._trace.record(self.name, f"has {effect_id}")
        if not self.calm and self._chance.probably(0.1):
            raise ConnectionError("the connection broke after the last word")

    async def _work(self) -> None:
        """Take a while, or hang, and then perhaps not even stop when told to."""
        if not self._chance.probably(0.05):
            await asyncio.sleep(self._chance.seconds())
            return
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            if self._chance.probably(0.3):
                await asyncio.sleep(3)
            raise


class ChannelOfProcess:
    """A `Channel` in one process."""

    def __init__(self, channel: SimulatedChannel, process: Process) -> None:
        self.name = channel.name
        self._channel = channel
        self._process = process

    async def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery over, or not, or both."""
        await self._channel.deliver(self._process, delivery)
