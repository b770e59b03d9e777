"""Hands over what is said to the user, to every channel at once.

A channel is foreign code: it may raise, hang, refuse to stop or cancel itself. None of that may hold up the others, or
what follows the delivery, so each attempt is a task of its own, which can be left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ...states.effects import DeliverToUser
from ...states.errors import ConfigurationError
from ...states.replies import text_of_reply
from ..scene import Scene
from .port import Channel, Delivery

logger = logging.getLogger("turnwise.channels")

ATTEMPT = 2.0
"""Seconds that one attempt may take. What follows a delivery waits that long at most (case B2), and `GRACE`."""

GRACE = 0.5
"""Seconds that an attempt which was told to stop may clean up before it is left behind. Ours."""


class DeliveryPerformer:
    """Carries out `DeliverToUser`. Nobody awaits it in the machine; it returns when the attempt is over.

    Raises `ConfigurationError` for channels that are none, and for two of one name.
    """

    def __init__(self, channels: Iterable[Channel]) -> None:
        if not isinstance(channels, Iterable):
            raise ConfigurationError("The channels are given as a list.")
        self._channels = tuple(channels)
        given: tuple[object, ...] = self._channels
        for channel in given:
            if not isinstance(channel, Channel) or not isinstance(channel.name, str):
                raise ConfigurationError("A channel is an object with a name and the method `deliver`.")
        names = [channel.name for channel in self._channels]
        if len(set(names)) < len(names):
            raise ConfigurationError("Two channels have the same name.")

    async def __call__(self, effect: DeliverToUser, scene: Scene) -> None:
        """Try every channel once. One that fails does not hold up the others; it is told and logged (case S20)."""
        delivery = Delivery(
            text=text_of_reply(scene.transcript.words(effect.said), scene.context.policy),
            conversation_id=scene.conversation_id,
            turn=effect.turn,
            ordinal=effect.ordinal,
            key=scene.key(effect.effect_id),
            origin=scene.transcript.origin(effect.said),
        )
        await asyncio.gather(*(self._attempt(channel, delivery, scene, effect.effect_id) for channel in self._channels))

    async def _attempt(self, channel: Channel, delivery: Delivery, scene: Scene, effect_id: int) -> None:
        attempt = asyncio.ensure_future(_error_of(channel, delivery))
        try:
            await asyncio.wait({attempt}, timeout=ATTEMPT)
            in_time = attempt.done()
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait({attempt}, timeout=GRACE)
        # A channel may return with a cancel of its own still to come; then its task was cancelled.
        error = attempt.result() if attempt.done() and not attempt.cancelled() else asyncio.CancelledError()
        if error is None:
            return
        if in_time:
            logger.warning("The channel %s failed on a delivery.", channel.name, exc_info=error)
            sentence = f"The channel {channel.name} failed on a delivery."
        else:
            sentence = f"The channel {channel.name} did not take a delivery within {ATTEMPT:g} s."
        scene.show(effect_id, "delivery_failed", {"key": delivery.key, "channel": channel.name, "sentence": sentence})


async def _error_of(channel: Channel, delivery: Delivery) -> BaseException | None:
    """What the channel raised, or None. Whatever it raises is caught: it must not end the engine's loop."""
    try:
        await channel.deliver(delivery)
    except BaseException as error:
        return error
    return None
