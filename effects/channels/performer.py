"""Hands over what is said to the user, to every channel at once."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from ...states.effects import DeliverToUser
from ...states.replies import text_of_reply
from ..scene import Scene
from .courier import Courier, Parcel
from .port import Delivery


class DeliveryPerformer:
    """Carries out `DeliverToUser`. Nobody awaits it in the machine; it returns when the first attempts are over."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    @property
    def targets(self) -> tuple[str, ...]:
        """Whom each delivery is for, as the outbox has it."""
        return self._courier.targets

    async def __call__(self, effect: DeliverToUser, scene: Scene) -> None:
        """Try every channel once. One that fails does not hold up the others; it is told, and tried again (S20)."""
        await self._courier.hand_in((target, _parcel(effect, scene, target)) for target in self.targets)

    def take_up(self, effect: DeliverToUser, scene: Scene, target: str, attempts: int, due: datetime | None) -> bool:
        """Go on with what an earlier process left to be delivered to this channel; False if there is none of that
        name."""
        if target not in self.targets:
            return False
        parcel = _parcel(effect, scene, target)
        parcel.attempts, parcel.due = attempts, due
        self._courier.take_up(target, parcel)
        return True


def _parcel(effect: DeliverToUser, scene: Scene, target: str) -> Parcel:
    delivery = Delivery(
        text=text_of_reply(scene.transcript.words(effect.said), scene.context.policy),
        conversation_id=scene.conversation_id,
        turn=effect.turn,
        ordinal=effect.ordinal,
        key=scene.key(effect.effect_id),
        origin=scene.transcript.origin(effect.said),
    )
    tell = partial(_tell, scene, effect.effect_id, delivery, target)
    return Parcel(delivery, effect.effect_id, scene.receipts, tell)


def _tell(scene: Scene, effect_id: int, delivery: Delivery, target: str, sentence: str | None) -> None:
    told = {"key": delivery.key, "channel": target, "turn": delivery.turn, "ordinal": delivery.ordinal}
    if sentence is None:
        scene.show(effect_id, "delivered", told)
    else:
        scene.show(effect_id, "delivery_failed", {**told, "sentence": sentence})
