"""Passes on to sub-agents what the user of their parent answers.

The answer is an outgoing effect of the parent: it stands in the outbox until the sub-agent has taken it, under the key
of the effect, so once. A sub-agent that no longer asks does not take it, and need not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...effects.channels.attempt import ATTEMPT_TIMEOUT
from ...effects.clock import Clock
from ...effects.context import EffectContext
from ...effects.retry_queues import PendingEffect, RetryQueues
from ...states.effects import AnswerSubAgent
from ...states.errors import Refused, TurnwiseError, UnknownConversation
from ...states.events import UserCancel, UserQuestionResponse
from ..conversations.registry import ConversationRegistry

if TYPE_CHECKING:
    from ...effects.dispatcher import Sender
    from ...effects.retry_queues import Resumable
    from ...persistence.ports import Store

logger = logging.getLogger("turnwise.agents")

NOT_TAKEN = "The sub-agent did not take an answer within {seconds:g} s."


class ChildAnswerPerformer:
    """Carries out `AnswerSubAgent`. No state awaits that effect; the performer returns after the first attempt."""

    def __init__(
        self, queues: RetryQueues, store: Callable[[], Store], registry: ConversationRegistry, clock: Clock
    ) -> None:
        self._queues = queues
        self._store = store
        self._registry = registry
        self._clock = clock

    def targets_of(self, effect: AnswerSubAgent) -> Sequence[str]:
        """The sub-agent, by the effect that started it."""
        return (f"sub-agent/{effect.child}",)

    async def __call__(self, effect: AnswerSubAgent, context: EffectContext) -> None:
        """Pass the answer on. If the sub-agent cannot take it now, it is tried again in the background."""
        await self._queues.submit([self._pending(effect, context)])

    async def resume(
        self, effect: AnswerSubAgent, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Queue an answer that an earlier process left in the outbox. Does not wait for it."""
        pending = self._pending(effect, context)
        pending.attempts, pending.due = attempts, due
        self._queues.resume(pending)
        return True

    def _pending(self, effect: AnswerSubAgent, context: EffectContext) -> PendingEffect:
        (target,) = self.targets_of(effect)
        attempt = partial(self._try, effect, context.conversation_id, context.key(effect.effect_id))
        return PendingEffect(context.conversation_id, effect.effect_id, target, context.receipts, attempt)

    async def _try(self, effect: AnswerSubAgent, parent_id: str, key: str) -> str | None:
        """Make one attempt. Returns None if the sub-agent has the answer, or no longer asks."""
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT):
                request = await self._request(effect, parent_id, key)
                await (await self._registry.read(f"{parent_id}/{effect.child}")).request(request)
        except TimeoutError:
            return NOT_TAKEN.format(seconds=ATTEMPT_TIMEOUT)
        except UnknownConversation:
            return None
        except Refused as refused:
            return refused.sentence if refused.code == "storage" else None
        except TurnwiseError as error:
            return error.sentence
        except Exception:
            logger.exception("An answer for a sub-agent could not be passed on.")
            return "Something broke inside the program that runs the agents."
        return None

    async def _request(self, effect: AnswerSubAgent, parent_id: str, key: str) -> UserQuestionResponse | UserCancel:
        """Return the request by which the sub-agent learns the answer, or that the user declined."""
        if effect.said is None:
            return UserCancel(event_id=key, at=self._clock.now(), call_id=effect.call_id)
        (entry,) = await self._store().entries(parent_id, effect.said.seq - 1, effect.said.seq)
        assert isinstance(entry.event, UserQuestionResponse), "the effect refers to what a user has answered"
        return entry.event.replace(event_id=key, at=self._clock.now(), call_id=effect.call_id)


if TYPE_CHECKING:
    _FILLS: tuple[type[Sender], type[Resumable]] = (ChildAnswerPerformer, ChildAnswerPerformer)
