"""Hands over what is said to the user, to every channel at once."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...states.effects import DeliverToUser
from ...states.replies.reply_text import text_of_reply
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

    async def __call__(self, effect: DeliverToUser, context: EffectContext) -> None:
        """Try every channel once. One that fails does not hold up the others; it is told, and tried again."""
        await self._courier.hand_in([(target, await parcel_of(effect, context, target)) for target in self.targets])


async def parcel_of(
    effect: DeliverToUser, context: EffectContext, target: str, attempts: int = 0, due: datetime | None = None
) -> PendingDelivery:
    """The delivery as it goes to this channel. So many `attempts` have failed, and the next one comes when it is `due`,
    None for at once."""
    delivery = Delivery(
        text=text_of_reply(await context.words(effect.said), context.policy),
        conversation_id=context.conversation_id,
        turn=effect.turn,
        ordinal=effect.ordinal,
        key=context.key(effect.effect_id),
        origin=await context.origin(effect.said),
    )
    tell = partial(_tell, context, effect.effect_id, delivery, target)
    return PendingDelivery(delivery, effect.effect_id, context.receipts, tell, attempts, due)


def _tell(context: EffectContext, effect_id: int, delivery: Delivery, target: str, sentence: str | None) -> None:
    told = {"key": delivery.key, "channel": target, "turn": delivery.turn, "ordinal": delivery.ordinal}
    if sentence is None:
        context.progress(effect_id, "delivered", told)
    else:
        context.progress(effect_id, "delivery_failed", {**told, "sentence": sentence})


if TYPE_CHECKING:
    from ..dispatcher import Sender

    _FILLS: type[Sender] = DeliveryPerformer
