"""Carries messages from one agent to another, and to sub-agents what the user of their parent answers.

Both are outgoing effects of their sender. Such an effect stands in the outbox of the sender until the target has stored
what it asks for, as a request. It is posted under the key of the effect, so the target takes it once, however often it
is posted. What the target cannot take now is tried again.

What the target of a message will never take, because it is closed or gone, is reported to the sender by a silent
message. A sub-agent that no longer asks does not take an answer, and need not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ...effects.agents import Agents
from ...effects.channels.delivery import ATTEMPT_TIMEOUT
from ...effects.clock import Clock
from ...effects.context import EffectContext, key_of
from ...effects.retry_queues import PendingEffect, RetryQueues
from ...persistence.errors import Damaged
from ...persistence.summaries import LONGEST_ID
from ...states.effects import AnswerSubAgent, OutgoingEffect, SendToAgent
from ...states.errors import Refused, TurnwiseError, UnknownConversation
from ...states.events import AgentMessage, UserCancel, UserQuestionResponse
from ...states.values.acts import Audience
from ...states.values.turn import Owed, Waiting
from ...states.values.value import MAX_QUOTED, shortened
from ..outbox import read_effect
from ..registry import ConversationRegistry, child_of
from ..requests import id_of_key, ids_of_key

if TYPE_CHECKING:
    from ...effects.dispatcher import Sender
    from ...effects.retry_queues import Resumable
    from ...persistence.ports import Store
    from ...persistence.records import Undelivered

logger: logging.Logger = logging.getLogger("turnwise.agents")

Post = Callable[[], Awaitable[None]]
"""Posts the request once. Returns if the target has taken it, or needs it no longer; else it raises, and is called
again later."""

_RETURNED = (
    "Your message to the agent {target} was not delivered: that agent is closed, or is none that you may write to."
)
"""What the sender reads of a message that its target will never take."""


class MailPerformer:
    """Carries out `SendToAgent`. No state awaits that effect; the performer returns after the first attempt."""

    def __init__(
        self,
        queues: RetryQueues,
        store: Callable[[], Store],
        agents: Agents,
        registry: ConversationRegistry,
        clock: Clock,
    ) -> None:
        self._posting = Posting(queues)
        self._store = store
        self._agents = agents
        self._registry = registry
        self._clock = clock

    def targets_of(self, effect: SendToAgent) -> Sequence[str]:
        """The agent that the message is for."""
        return (effect.target,)

    async def __call__(self, effect: SendToAgent, context: EffectContext) -> None:
        """Post the message once. If the target does not take it, it is tried again in the background."""
        post = partial(self._post_in_order, await self._post_of(effect, context), effect.target, context)
        await self._posting.submit(effect, context, effect.target, post)

    async def resume(
        self, effect: SendToAgent, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Queue a message that an earlier process left in the outbox. Does not wait for it."""
        self._posting.resume(effect, context, target, await self._post_of(effect, context), attempts, due)
        return True

    async def return_unread(self, deleted_id: str, unread: Sequence[Waiting | Owed], link: bytes) -> None:
        """Tell the agents whose messages waited in a conversation that was deleted, or had yet to be passed on to its
        user. `link` is that of its newest step. An agent that cannot be told at once is not told."""
        for one in unread:
            if not one.origin:
                continue
            seq = one.said.seq if isinstance(one, Owed) else one.seq
            try:
                await self._return(deleted_id, one.origin, key_of(deleted_id, seq, link))
            except TurnwiseError as error:
                logger.warning("The agent %s is not told what was not delivered: %s", one.origin, error.sentence)

    async def _post_of(self, effect: SendToAgent, context: EffectContext) -> Post:
        text = await _text_of(effect, context)
        return partial(self._deliver_or_return, effect, text, context.conversation_id, context.key(effect.effect_id))

    async def _post_in_order(self, post: Post, target: str, context: EffectContext) -> None:
        """Post what earlier steps have for this target, and then this. Another engine may drive the sender as well, and
        may not have posted its mail yet."""
        for one in await self._store().outbox([context.conversation_id]):
            if one.target == target and one.seq < context.seq:
                with suppress(Damaged):  # what cannot be read holds nothing up
                    await self._post_earlier(one, context)
        await post()

    async def _post_earlier(self, one: Undelivered, context: EffectContext) -> None:
        """Post a message for the engine that has it in its queue. The target takes it once; if it never will, that
        engine returns it. Raises `Damaged` if it cannot be read."""
        sender_id = context.conversation_id
        effect, asked = await read_effect(partial(self._store().entries, sender_id), one, context)
        if isinstance(effect, SendToAgent):
            await self._deliver(effect, await _text_of(effect, asked), sender_id, asked.key(effect.effect_id))

    async def _deliver_or_return(self, effect: SendToAgent, text: str, sender_id: str, key: str) -> None:
        if not await self._deliver(effect, text, sender_id, key):
            await self._return(effect.target, sender_id, key)

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
            notice = _RETURNED.format(target=shortened(target, MAX_QUOTED))
            await self._post(sender_id, notice, target[:LONGEST_ID], f"{key}/returned", silent=True)
        except UnknownConversation:
            pass  # it was deleted meanwhile
        except Refused as refused:
            if refused.code != "closed":
                raise

    async def _post(
        self, target: str, text: str, origin: str, key: str, audience: Audience = "agent", *, silent: bool
    ) -> None:
        loop = await self._registry.get_loop(target)
        for event_id in ids_of_key(key):
            message = AgentMessage(
                event_id=event_id, at=self._clock.now(), origin=origin, text=text, audience=audience, silent=silent
            )
            try:
                await loop.request(message)
                return
            except Refused as refused:
                if refused.code != "event_id_reused":
                    raise


_UNREAD = (
    "Your message to the agent {target} was not read, or its user was not told of it, because that agent has closed or "
    "too much time has passed: {text}"
)
"""What the sender reads of a message that still waited, or had yet to be passed on, when its target closed, and of one
that lapsed."""


async def _text_of(effect: SendToAgent, context: EffectContext) -> str:
    text = await context.words(effect.said)
    if effect.returned:
        return _UNREAD.format(target=context.conversation_id, text=shortened(text, MAX_QUOTED))
    return text


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
                await (await self._registry.get_loop(child_id)).request(request)
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
    _FILLS: tuple[tuple[type[Sender], type[Resumable]], ...] = (
        (MailPerformer, MailPerformer),
        (ChildAnswerPerformer, ChildAnswerPerformer),
    )


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


BROKEN = "Something broke inside the program that runs the agents."
"""Why an attempt has failed that raised an error which is not for people."""


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
