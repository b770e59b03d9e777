"""Takes up what an earlier process left to be delivered."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..effects.channels.delivery_dispatcher import DeliveryDispatcher
from ..effects.channels.performer import make_pending_delivery
from ..effects.context import EffectContext
from ..states.effects import DeliverToUser, Effect
from ..states.log import LogEntry

if TYPE_CHECKING:
    from ..persistence.records.outbox import Undelivered

logger = logging.getLogger("turnwise.engine")


async def take_up(
    left: Iterable[Undelivered], entries: Sequence[LogEntry], context: EffectContext, courier: DeliveryDispatcher
) -> None:
    """Hand what was left of one conversation to the courier, in the order in which it was said. What is for a channel
    that this engine does not have is reported, and stays in the outbox."""
    for one in left:
        effect = _effect(entries, one)
        if effect is not None and one.target in courier.targets:
            courier.resume(
                one.target, await make_pending_delivery(effect, context, one.target, one.attempts, one.next_attempt)
            )
        else:
            logger.warning(
                "Something in the conversation %s is still to be delivered to %s, which is not there.",
                one.conversation_id,
                one.target,
            )


def _effect(entries: Sequence[LogEntry], one: Undelivered) -> DeliverToUser | None:
    """What is to be delivered, as the log has it."""
    effects: tuple[Effect, ...] = entries[one.seq - 1].effects if one.seq <= len(entries) else ()
    for effect in effects:
        if isinstance(effect, DeliverToUser) and effect.effect_id == one.effect_id:
            return effect
    return None
