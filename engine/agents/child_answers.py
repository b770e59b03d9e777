"""Passes on to sub-agents what the user of their parent answers.

The answer is an outgoing effect of the parent, which `posting` hands over. A sub-agent that no longer asks does not
take it, and need not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...effects.context import EffectContext
from ...effects.retry_queues import RetryQueues
from ...states.effects import AnswerSubAgent
from ...states.errors import Refused, UnknownConversation
from ...states.events import UserCancel, UserQuestionResponse
from ..conversations.registry import ConversationRegistry
from ..handles.children import child_of
from ..requests import id_of_key
from .posting import Post, Posting

if TYPE_CHECKING:
    from ...effects.dispatcher import Sender
    from ...effects.retry_queues import Resumable
    from ...persistence.ports import Store


class ChildAnswerPerformer:
    """Carries out `AnswerSubAgent`. No state awaits that effect; the performer returns after the first attempt."""

    def __init__(
        self, queues: RetryQueues, store: Callable[[], Store], registry: ConversationRegistry, clock: Clock
    ) -> None:
        self._posting = Posting(queues)
        self._store = store
        self._registry = registry
        self._clock = clock

    def targets_of(self, effect: AnswerSubAgent) -> Sequence[str]:
        """The sub-agent, by the effect that started it."""
        return (f"sub-agent/{effect.child}",)

    async def __call__(self, effect: AnswerSubAgent, context: EffectContext) -> None:
        """Pass the answer on. If the sub-agent cannot take it now, it is tried again in the background."""
        (target,) = self.targets_of(effect)
        await self._posting.submit(effect, context, target, self._post_of(effect, context))

    async def resume(
        self, effect: AnswerSubAgent, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Queue an answer that an earlier process left in the outbox. Does not wait for it."""
        self._posting.resume(effect, context, target, self._post_of(effect, context), attempts, due)
        return True

    def _post_of(self, effect: AnswerSubAgent, context: EffectContext) -> Post:
        return partial(self._pass_on, effect, context.conversation_id, context.key(effect.effect_id))

    async def _pass_on(self, effect: AnswerSubAgent, parent_id: str, key: str) -> None:
        """Have the sub-agent take the answer, unless it no longer asks."""
        try:
            request = await self._request(effect, parent_id, key)
            child_id = await child_of(self._store(), parent_id, effect.child)
            if child_id is not None:
                await (await self._registry.read(child_id)).request(request)
        except UnknownConversation:
            pass  # it was deleted
        except Refused as refused:
            if refused.code == "storage":
                raise

    async def _request(self, effect: AnswerSubAgent, parent_id: str, key: str) -> UserQuestionResponse | UserCancel:
        """Return the request by which the sub-agent learns the answer, or that the user declined."""
        if effect.said is None:
            return UserCancel(event_id=id_of_key(key), at=self._clock.now(), call_id=effect.call_id)
        (entry,) = await self._store().entries(parent_id, effect.said.seq - 1, effect.said.seq)
        assert isinstance(entry.event, UserQuestionResponse), "the effect refers to what a user has answered"
        return entry.event.replace(event_id=id_of_key(key), at=self._clock.now(), call_id=effect.call_id)


if TYPE_CHECKING:
    _FILLS: tuple[type[Sender], type[Resumable]] = (ChildAnswerPerformer, ChildAnswerPerformer)
