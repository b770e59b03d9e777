"""Hands over what one agent has for another: an outgoing effect that its target takes as a request.

The effect stands in the outbox of its sender until the target has stored the request. It is posted under the key of the
effect, so the target takes it once, however often it is posted. What the target cannot take now is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from ...effects.channels.delivery import ATTEMPT_TIMEOUT
from ...effects.context import EffectContext
from ...effects.retry_queues import PendingEffect, RetryQueues
from ...states.effects import OutgoingEffect
from ...states.errors import TurnwiseError

logger = logging.getLogger("turnwise.agents")

BROKEN = "Something broke inside the program that runs the agents."
"""Why an attempt has failed that raised an error which is not for people."""

Post = Callable[[], Awaitable[None]]
"""Posts the request once. Returns if the target has taken it, or needs it no longer; else it raises, and is called
again later."""


class Posting:
    """Posts effects of agents through the queues of an engine."""

    def __init__(self, queues: RetryQueues) -> None:
        self._queues = queues

    async def submit(self, effect: OutgoingEffect, context: EffectContext, target: str, post: Post) -> None:
        """Post the effect once. A target that takes long delays what its sender does next for as long as one attempt of
        a delivery may; then, and if it does not take the effect, posting goes on in the background."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._queues.submit([_pending(effect, context, target, post)]), ATTEMPT_TIMEOUT)

    def resume(
        self,
        effect: OutgoingEffect,
        context: EffectContext,
        target: str,
        post: Post,
        attempts: int,
        due: datetime | None,
    ) -> None:
        """Go on with an effect that an earlier process left in the outbox, as `Resumable` says."""
        pending = _pending(effect, context, target, post)
        pending.attempts, pending.due = attempts, due
        self._queues.resume(pending)


def _pending(effect: OutgoingEffect, context: EffectContext, target: str, post: Post) -> PendingEffect:
    attempt = partial(_attempt, post, effect.type)
    return PendingEffect(context.conversation_id, effect.effect_id, target, context.receipts, attempt)


async def _attempt(post: Post, kind: str) -> str | None:
    """Make one attempt. Returns None if it has succeeded, otherwise a sentence that says why not."""
    try:
        await post()
    except TurnwiseError as error:
        return error.sentence
    except Exception:
        logger.exception("An effect of the type %s could not be posted to another agent.", kind)
        return BROKEN
    return None
