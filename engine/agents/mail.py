"""Carries messages from one agent to another.

A message is an outgoing effect of its sender: it stands in the outbox from the step that asks for it until the target
has stored it. It is posted to the target under the key of the effect, so that the target takes it once, however often
it is posted. What the target cannot take now is tried again; what it will never take, because it is closed or gone, is
reported to the sender by a silent message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ...effects.agents.port import Agents
from ...effects.channels.attempt import ATTEMPT_TIMEOUT
from ...effects.clock import Clock
from ...effects.context import EffectContext
from ...effects.retry_queues import PendingEffect, RetryQueues
from ...states.effects import SendToAgent
from ...states.errors import Refused, TurnwiseError, UnknownConversation
from ...states.events import AgentMessage
from ...states.values.acts import Audience
from ...states.values.value import MAX_QUOTED, shortened
from ..conversations.registry import ConversationRegistry
from ..requests import LONGEST_ID

if TYPE_CHECKING:
    from ...effects.dispatcher import Sender
    from ...effects.retry_queues import Resumable

logger = logging.getLogger("turnwise.agents")

RETURNED = (
    "Your message to the agent {target} was not delivered: that agent is closed, or is none that you may write to."
)
"""What the sender reads of a message that its target will never take."""

UNREAD = "Your message to the agent {target} was not read, because that agent has closed: {text}"
"""What the sender reads of a message that still waited when its target closed."""


class MailPerformer:
    """Carries out `SendToAgent`. No state awaits that effect; the performer returns after the first attempt."""

    def __init__(self, queues: RetryQueues, agents: Agents, registry: ConversationRegistry, clock: Clock) -> None:
        self._queues = queues
        self._agents = agents
        self._registry = registry
        self._clock = clock

    def targets_of(self, effect: SendToAgent) -> Sequence[str]:
        """The agent that the message is for."""
        return (effect.target,)

    async def __call__(self, effect: SendToAgent, context: EffectContext) -> None:
        """Post the message once, or wait as long as an attempt may delay what comes behind it. If the target does not
        take it, it is tried again in the background."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._queues.submit([await self._pending(effect, context)]), ATTEMPT_TIMEOUT)

    async def resume(
        self, effect: SendToAgent, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Queue a message that an earlier process left in the outbox. Does not wait for it."""
        pending = await self._pending(effect, context)
        pending.attempts, pending.due = attempts, due
        self._queues.resume(pending)
        return True

    async def _pending(self, effect: SendToAgent, context: EffectContext) -> PendingEffect:
        text = await context.words(effect.said)
        if effect.returned:
            text = UNREAD.format(target=context.conversation_id, text=shortened(text, MAX_QUOTED))
        return PendingEffect(
            context.conversation_id,
            effect.effect_id,
            effect.target,
            context.receipts,
            partial(self._try, effect, text, context.conversation_id, context.key(effect.effect_id)),
        )

    async def _try(self, effect: SendToAgent, text: str, sender_id: str, key: str) -> str | None:
        """Make one attempt. Returns None if the target has the message, or the sender knows that it will never."""
        try:
            if not await self._deliver(effect, text, sender_id, key):
                await self._return(effect.target, sender_id, key)
            return None
        except TurnwiseError as error:
            return error.sentence
        except Exception:
            logger.exception("A message to the agent %s could not be posted.", effect.target)
            return "Something broke inside the program that runs the agents."

    async def _deliver(self, effect: SendToAgent, text: str, sender_id: str, key: str) -> bool:
        """Post the message. Returns whether the target has it; false if it will never take it."""
        if await self._agents.reachable(sender_id, effect.target) is None:
            return False
        try:
            await self._post(effect.target, text, sender_id, key, effect.audience, silent=effect.silent)
        except (UnknownConversation, ValidationError):
            return False
        except Refused as refused:
            if refused.code != "closed":
                raise
            return False
        return True

    async def _return(self, target: str, sender_id: str, key: str) -> None:
        """Tell the sender that its message was not delivered, unless it cannot be told either."""
        try:
            notice = RETURNED.format(target=shortened(target, MAX_QUOTED))
            await self._post(sender_id, notice, target[:LONGEST_ID], f"{key}/returned", silent=True)
        except UnknownConversation:
            pass  # it was deleted meanwhile
        except Refused as refused:
            if refused.code != "closed":
                raise

    async def _post(
        self, target: str, text: str, origin: str, event_id: str, audience: Audience = "agent", *, silent: bool
    ) -> None:
        message = AgentMessage(
            event_id=event_id, at=self._clock.now(), origin=origin, text=text, audience=audience, silent=silent
        )
        loop = await self._registry.read(target)
        await loop.request(message)


if TYPE_CHECKING:
    _FILLS: tuple[type[Sender], type[Resumable]] = (MailPerformer, MailPerformer)
