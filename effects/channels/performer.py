"""Hands over what is said to the user, to every channel at once."""

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
"""Seconds that one attempt may take. What follows a delivery waits that long at most (case B2)."""


class DeliveryPerformer:
    """Carries out `DeliverToUser`. Nobody awaits it in the machine; it returns when the attempt is over.

    Raises `ConfigurationError` for channels that are none, and for two of one name.
    """

    def __init__(self, channels: Iterable[Channel]) -> None:
        self._channels = tuple(channels)
        for channel in self._channels:
            if not isinstance(channel, Channel):
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
        try:
            async with asyncio.timeout(ATTEMPT):
                await channel.deliver(delivery)
            return
        except TimeoutError:
            sentence = f"The channel {channel.name} did not take a delivery within {ATTEMPT:g} s."
        except Exception:
            logger.warning("The channel %s failed on a delivery.", channel.name, exc_info=True)
            sentence = f"The channel {channel.name} failed on a delivery."
        scene.show(effect_id, "delivery_failed", {"key": delivery.key, "channel": channel.name, "sentence": sentence})
