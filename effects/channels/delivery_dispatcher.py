"""Delivers through the channels, each of which has a retry queue for each conversation.

A delivery that a channel does not take is tried again, and those behind it wait, so that people receive them in the
order in which they were said. Other channels, and the conversation itself, go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import cast

from ...states.errors import ConfigurationError
from ...states.values.value import encodable
from ..clock import Clock
from ..receipts import Receipts
from ..retry_queues import Earlier, Left, PendingEffect, RetryQueues
from .attempt import ATTEMPT_TIMEOUT, GRACE, attempt
from .port import Channel, Delivery

Attempt = Callable[[Channel, Delivery], Awaitable[str | None]]
"""Makes one attempt. Returns None if the channel has taken the delivery, otherwise a sentence that says why not."""

CLOSING_TIMEOUT = ATTEMPT_TIMEOUT + GRACE
"""Seconds that deliveries which were never tried get when the engine closes: as long as one attempt takes at most."""


@dataclass(frozen=True)
class PendingDelivery:
    """A delivery on its way to one channel.

    `report` is called after each attempt with the reason why it failed, or None if the channel has taken the delivery.
    `attempts` are those that failed, and `due` is when the next one is made. `begun` counts the processes that have
    died in an attempt at what is taken from the outbox; it is None for what is not.
    """

    delivery: Delivery
    effect_id: int
    receipts: Receipts
    report: Callable[[str | None], None]
    attempts: int = 0
    due: datetime | None = None
    begun: int | None = None


class DeliveryDispatcher:
    """The queues of all conversations, one for each channel. `make_attempt` replaces `attempt.attempt`, and `earlier`
    finds what other engines have yet to deliver.

    Raises `ConfigurationError` for objects that are not channels, and for two channels of one name.
    """

    def __init__(
        self,
        channels: Iterable[Channel],
        clock: Clock,
        make_attempt: Attempt | None = None,
        earlier: Earlier | None = None,
    ) -> None:
        self._channels = _by_name(channels)
        self._make_attempt = make_attempt
        self._queues = RetryQueues(clock, earlier)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the channels. Each delivery goes to all of them."""
        return tuple(self._channels)

    @property
    def left(self) -> Set[Left]:
        """What had not arrived when the deliveries were stopped."""
        return self._queues.left

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels, in the order of `targets`."""
        return tuple(self._channels.values())

    async def submit(self, deliveries: Iterable[tuple[str, PendingDelivery]]) -> None:
        """Queue each delivery for the channel named beside it, and return when each was tried once, or waits behind one
        that has failed."""
        await self._queues.submit([self._effect(target, pending) for target, pending in deliveries])

    def resume(self, target: str, pending: PendingDelivery) -> None:
        """Queue a delivery that an earlier process left in the outbox. Does not wait."""
        self._queues.resume(self._effect(target, pending))

    async def drop(self, conversation_id: str) -> None:
        """Stop delivering for this conversation."""
        await self._queues.drop(conversation_id)

    async def wait_until_tried(self) -> None:
        """Return when each queued delivery was tried once, by this process or an earlier one, or waits behind one that
        has failed."""
        await self._queues.wait_until_tried()

    async def close(self) -> None:
        """Stop delivering, once each delivery was tried. Those that have not arrived stay in the outbox."""
        await self._queues.close(CLOSING_TIMEOUT)

    def _effect(self, target: str, pending: PendingDelivery) -> PendingEffect:
        return PendingEffect(
            pending.delivery.conversation_id,
            pending.effect_id,
            target,
            pending.receipts,
            partial(self._try, target, pending.delivery),
            pending.report,
            pending.attempts,
            pending.due,
            pending.begun,
        )

    async def _try(self, target: str, delivery: Delivery) -> str | None:
        return await (self._make_attempt or attempt)(self._channels[target], delivery)


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
