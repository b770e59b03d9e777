"""The outbox of a conversation: what goes into it with a step, and what an earlier process left in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..effects.context import EffectContext
from ..effects.dispatcher import Sender
from ..effects.retry_queues import Resumable
from ..persistence.errors import Damaged, StorageFailed
from ..persistence.records import Outgoing
from ..states.effects import DeliverToUser, Effect, OutgoingEffect
from ..states.errors import StoreError

if TYPE_CHECKING:
    from ..persistence.ports import SharedStore
    from ..persistence.records import Undelivered
    from .projection import ReadEntries

logger: logging.Logger = logging.getLogger("turnwise.engine")


def outgoing_of(effects: Iterable[Effect], senders: Mapping[type[Effect], Sender]) -> tuple[Outgoing, ...]:
    """Return what is stored in the outbox with a step that has these effects: whom each of them must reach, as its
    sender says."""
    outgoing: tuple[Outgoing, ...] = ()
    for effect in effects:
        if (sender := senders.get(type(effect))) is not None and isinstance(effect, OutgoingEffect):
            outgoing += tuple(Outgoing(effect.effect_id, target) for target in sender.targets_of(effect))
    return outgoing


async def take_over_outbox(
    undelivered: Iterable[Undelivered],
    read_entries: ReadEntries,
    context: EffectContext,
    resumers: Mapping[type[Effect], Resumable],
) -> None:
    """Go on with what an earlier process left in the outbox of one conversation, in its order.

    What this engine cannot send, such as a delivery for a channel that it does not have, is reported and stays in the
    outbox. So does an effect that cannot be read; those behind it go on. Raises `StorageFailed` if the log cannot be
    read just now: what has not been gone on with is still to be.
    """
    for one in undelivered:
        try:
            await _resume(one, read_entries, context, resumers)
        except StorageFailed:
            raise
        except StoreError as error:
            logger.warning(
                "What the conversation %s has for %s in step %d cannot be read: %s",
                one.conversation_id,
                one.target,
                one.seq,
                error,
            )


async def _resume(
    one: Undelivered, read_entries: ReadEntries, context: EffectContext, resumers: Mapping[type[Effect], Resumable]
) -> None:
    """Go on with this effect, or report that this engine cannot. Raises `StoreError`."""
    effect, context = await read_effect(read_entries, one, context)
    resumer = resumers.get(type(effect))
    if resumer is None or not await resumer.resume(effect, context, one.target, one.attempts, one.next_attempt):
        what = "a delivery for the channel" if isinstance(effect, DeliverToUser) else f"an effect {effect.type} for"
        logger.warning(
            "The conversation %s still has %s %s, which this engine does not have.",
            one.conversation_id,
            what,
            one.target,
        )


FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5
"""Seconds between two looks at what other processes have yet to send; doubled each time."""


async def until_tried(store: Callable[[], SharedStore]) -> None:
    """Return when everything that is in the outboxes so far was tried once, in whichever process. Raises
    `StoreError`."""
    untried, wait = await store().untried(), FIRST_LOOK
    while untried:
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_LOOK)
        untried &= await store().untried()


async def read_effect(
    read_entries: ReadEntries, one: Undelivered, context: EffectContext
) -> tuple[OutgoingEffect, EffectContext]:
    """Return what is to be sent, as the log has it, and this context with the link of the step that asked for it.
    Raises `Damaged` if the log has no such effect, and other `StoreError` where it cannot be read."""
    for entry in await read_entries(one.seq - 1, one.seq):
        for effect in entry.effects:
            if isinstance(effect, OutgoingEffect) and effect.effect_id == one.effect_id:
                return effect, context.asked_by(effect.effect_id, entry.chain, one.begun)
    raise Damaged(one.seq, f"The step has no effect {one.effect_id}.")
