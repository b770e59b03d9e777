"""Delivers what is said to the user, through every channel."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...states.effects import DELIVERY_DEATHS, DeliverToUser
from ...states.replies import text_of_delivery
from ..context import EffectContext
from ..logs import performer_logger
from .delivery_dispatcher import DeliveryDispatcher, PendingDelivery
from .port import Delivery

logger = performer_logger("turnwise.channels")

LEFT_OUT = "The channel {} ended the program at each attempt to deliver this. It is left out."
"""What is told of a delivery in which too many processes have died."""


class DeliveryPerformer:
    """Carries out `DeliverToUser`. No state awaits that effect; the performer returns after the first attempts."""

    def __init__(self, deliveries: DeliveryDispatcher) -> None:
        self._deliveries = deliveries

    def targets_of(self, effect: DeliverToUser) -> tuple[str, ...]:
        """The names of the channels, under which the outbox stores each delivery."""
        return self._deliveries.targets

    async def __call__(self, effect: DeliverToUser, context: EffectContext) -> None:
        """Try every channel once. A channel that fails does not delay the others; it is reported, and tried again."""
        targets = self.targets_of(effect)
        deliveries = [(target, await make_pending_delivery(effect, context, target)) for target in targets]
        await self._deliveries.submit(deliveries)

    async def resume(
        self, effect: DeliverToUser, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Hand a delivery that an earlier process left to its channel. Returns false if there is no such channel.

        One in which too many processes have died is left out, and reported. It stays in the outbox.
        """
        if target not in self.targets_of(effect):
            return False
        pending = await make_pending_delivery(effect, context, target, attempts, due)
        if context.begun < DELIVERY_DEATHS:
            self._deliveries.resume(target, replace(pending, begun=context.begun))
        else:
            logger.warning("The conversation %s: %s", context.conversation_id, LEFT_OUT.format(target))
            pending.report(LEFT_OUT.format(target))
        return True


async def make_pending_delivery(
    effect: DeliverToUser, context: EffectContext, target: str, attempts: int = 0, due: datetime | None = None
) -> PendingDelivery:
    """The delivery for this channel. `attempts` are those that have failed, and the next one is made when it is `due`;
    None means at once."""
    delivery = Delivery(
        text=text_of_delivery(await context.words(effect.said), context.policy, relayed=effect.relayed),
        conversation_id=context.conversation_id,
        turn=effect.turn,
        ordinal=effect.ordinal,
        key=context.key(effect.effect_id),
        origin=await context.origin(effect.said),
    )
    report = partial(_report, context, effect.effect_id, delivery, target)
    return PendingDelivery(delivery, effect.effect_id, context.receipts, report, attempts, due)


def _report(context: EffectContext, effect_id: int, delivery: Delivery, target: str, fault: str | None) -> None:
    data = {"key": delivery.key, "channel": target, "turn": delivery.turn, "ordinal": delivery.ordinal}
    if fault is None:
        context.progress(effect_id, "delivered", data)
    else:
        context.progress(effect_id, "delivery_failed", {**data, "sentence": fault})


if TYPE_CHECKING:
    from ..dispatcher import Sender
    from ..retry_queues import Resumable

    _FILLS: tuple[type[Sender], type[Resumable]] = (DeliveryPerformer, DeliveryPerformer)
