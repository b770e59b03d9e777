"""Hands over what is said to the user, to every channel at once."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...states.effects import DeliverToUser
from ...states.projections.reply_text import text_of_reply
from ..context import EffectContext
from .delivery_dispatcher import DeliveryDispatcher, PendingDelivery
from .port import Delivery


class DeliveryPerformer:
    """Carries out `DeliverToUser`. Nobody awaits it in the machine; it returns when the first attempts are over."""

    def __init__(self, courier: DeliveryDispatcher) -> None:
        self._courier = courier

    @property
    def targets(self) -> tuple[str, ...]:
        """Whom each delivery is for, as the outbox has it."""
        return self._courier.targets

    async def __call__(self, effect: DeliverToUser, scene: EffectContext) -> None:
        """Try every channel once. One that fails does not hold up the others; it is told, and tried again (S20)."""
        await self._courier.hand_in((target, parcel_of(effect, scene, target)) for target in self.targets)


def parcel_of(
    effect: DeliverToUser, scene: EffectContext, target: str, attempts: int = 0, due: datetime | None = None
) -> PendingDelivery:
    """The delivery as it goes to this channel. So many `attempts` have failed, and the next one comes when it is `due`,
    None for at once."""
    delivery = Delivery(
        text=text_of_reply(scene.transcript.words(effect.said), scene.context.policy),
        conversation_id=scene.conversation_id,
        turn=effect.turn,
        ordinal=effect.ordinal,
        key=scene.key(effect.effect_id),
        origin=scene.transcript.origin(effect.said),
    )
    tell = partial(_tell, scene, effect.effect_id, delivery, target)
    return PendingDelivery(delivery, effect.effect_id, scene.receipts, tell, attempts, due)


def _tell(scene: EffectContext, effect_id: int, delivery: Delivery, target: str, sentence: str | None) -> None:
    told = {"key": delivery.key, "channel": target, "turn": delivery.turn, "ordinal": delivery.ordinal}
    if sentence is None:
        scene.show(effect_id, "delivered", told)
    else:
        scene.show(effect_id, "delivery_failed", {**told, "sentence": sentence})


if TYPE_CHECKING:
    from ..dispatcher import Sender

    _FILLS: type[Sender] = DeliveryPerformer
