"""Ends sub-agents for which nobody waits: their parent has gone on without them, was closed or was deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...effects.clock import Clock
from ...states.effects import SpawnSubAgent
from ...states.errors import EngineClosed, Refused, StoreError, UnknownConversation
from ...states.events import CloseRequested, Event, SubAgentFinished
from ...states.states import State, pending
from ...states.step import Step
from ..conversations.registry import ConversationRegistry
from ..handles.children import child_of, parent_of
from ..loop import Loop
from .child_conversation import CLOSED, ChildConversation

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ..ports import Observer

logger = logging.getLogger("turnwise.agents")


class Orphans:
    """The sub-agents of an engine for which nobody waits. It observes the steps of their parents, and looks at what
    earlier processes have left."""

    def __init__(self, registry: ConversationRegistry, store: Callable[[], Store], clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._closing: dict[asyncio.Task[None], None] = {}
        """The tasks that close sub-agents, in the order in which they began."""

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """End the sub-agents that the conversation has awaited and awaits no longer, though they have not answered."""
        if SpawnSubAgent not in before.IN_FLIGHT:
            return
        awaited = {effect_id for effect_id, kind in before.in_flight().items() if kind is SpawnSubAgent}
        answered = {event.effect_id} if isinstance(event, SubAgentFinished) else set()
        for effect_id in awaited - pending(step.state) - answered:
            self._close_later(self._close_child(conversation_id, effect_id))

    async def end_at_rest(self, store: Store) -> None:
        """End the sub-agents that an earlier process has created, though it had not given them their task, and for
        which nobody waits."""
        try:
            for summary in await store.list(role="sub_agent", state="idle"):
                await self.end(await self._registry.read(summary.id))
        except StoreError as error:
            logger.warning("The sub-agents for which nobody waits cannot be listed: %s", error)

    async def end(self, loop: Loop) -> None:
        """End a sub-agent that an earlier process has left, if its parent does not await it."""
        if loop.projection.context.role != "sub_agent":
            return
        try:
            if await self._is_orphaned(loop):
                await loop.request(CloseRequested(event_id=CLOSED, at=self._clock.now()))
        except Refused:
            self._close_later(self._close(loop.conversation_id))  # the store takes nothing at the moment
        except StoreError as error:
            logger.warning("Who waits for the sub-agent %s is not known: %s", loop.conversation_id, error)

    async def _is_orphaned(self, loop: Loop) -> bool:
        parent_id, effect_id = parent_of(loop.conversation_id)
        if parent_id != loop.projection.context.parent:
            return False  # a copy, for which nobody has ever waited
        try:
            parent = await self._registry.read(parent_id)
        except UnknownConversation:
            return True
        is_awaited = effect_id in pending(parent.state)
        return not is_awaited or parent.effect_context().key(effect_id) != loop.conversation_id

    def _close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing[task] = None
        task.add_done_callback(self._closing.pop)

    async def _close_child(self, parent_id: str, effect_id: int) -> None:
        try:
            child_id = await child_of(self._store(), parent_id, effect_id)
        except EngineClosed:
            return
        except StoreError as error:
            logger.warning("A sub-agent of %s, for which nobody waits, cannot be found: %s", parent_id, error)
            return
        if child_id is not None:
            await self._close(child_id)

    async def _close(self, child_id: str) -> None:
        try:
            loop = await self._registry.read(child_id)
            await ChildConversation(self._registry, loop, self._clock).close()
        except (EngineClosed, UnknownConversation):
            pass
        except StoreError as error:
            logger.warning("The sub-agent %s, for which nobody waits, cannot be closed: %s", child_id, error)

    async def close(self) -> None:
        """Stop ending sub-agents: those that are left are found when they are taken over."""
        for closing in self._closing:
            closing.cancel()
        if self._closing:
            await asyncio.wait(self._closing)


if TYPE_CHECKING:
    _FILLS: type[Observer] = Orphans
