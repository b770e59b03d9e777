"""The outbox of a conversation: what goes into it with a step, and what an earlier process left in it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..effects.channels.delivery_dispatcher import DeliveryDispatcher
from ..effects.channels.delivery_performer import make_pending_delivery
from ..effects.context import EffectContext
from ..effects.dispatcher import Performer, Sender
from ..persistence.records.outbox import Outgoing
from ..states.effects import OUTGOING, DeliverToUser, Effect, OutgoingEffect

if TYPE_CHECKING:
    from ..persistence.records.outbox import Undelivered
    from .projections.projection import ReadEntries

logger = logging.getLogger("turnwise.engine")


class OutboxTargets:
    """Knows whom each outgoing effect must reach: the targets of its performer, if that is a `Sender`."""

    def __init__(self, performers: Mapping[type[Effect], Performer]) -> None:
        outgoing = ((kind, performers.get(kind)) for kind in OUTGOING)
        self._senders: dict[type[Effect], Sender] = {kind: one for kind, one in outgoing if isinstance(one, Sender)}

    def of(self, effects: Iterable[Effect]) -> tuple[Outgoing, ...]:
        """Return what is stored in the outbox with a step that has these effects."""
        return tuple(self._of(effects))

    def _of(self, effects: Iterable[Effect]) -> Iterator[Outgoing]:
        for effect in effects:
            sender = self._senders.get(type(effect))
            if sender is not None and isinstance(effect, OutgoingEffect):
                yield from (Outgoing(effect.effect_id, target) for target in sender.targets)


async def take_over_deliveries(
    undelivered: Iterable[Undelivered],
    read_entries: ReadEntries,
    context: EffectContext,
    deliveries: DeliveryDispatcher,
) -> None:
    """Hand what an earlier process left in the outbox of one conversation to the channels, in its order.

    A delivery for a channel that this engine does not have is reported, and stays in the outbox. Raises `StoreError`.
    """
    for one in undelivered:
        effect = await _effect(read_entries, one) if one.target in deliveries.targets else None
        if effect is None:
            logger.warning(
                "The conversation %s still has a delivery for the channel %s, which this engine does not have.",
                one.conversation_id,
                one.target,
            )
        else:
            deliveries.resume(
                one.target, await make_pending_delivery(effect, context, one.target, one.attempts, one.next_attempt)
            )


async def _effect(read_entries: ReadEntries, one: Undelivered) -> DeliverToUser | None:
    """Return what is to be delivered, as the log has it; None if the log has no such effect."""
    for entry in await read_entries(one.seq - 1, one.seq):
        for effect in entry.effects:
            if isinstance(effect, DeliverToUser) and effect.effect_id == one.effect_id:
                return effect
    return None
