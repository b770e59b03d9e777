"""The sub-agents of one engine: conversations that a turn of another conversation has started.

A sub-agent is driven like any other conversation. What is special is its id, the key of the effect that started it,
which says who waits for it, and that it ends when nobody does (`orphans`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...states.errors import UnknownConversation
from ...states.events import Opened, SubAgentAsked
from ...states.states import AwaitingSubAgents
from ...states.values.questions import OpenQuestion
from ..conversations.registry import ConversationRegistry
from ..handles.children import parent_of
from ..loop import Loop
from ..requests import checked_id
from .child_conversation import ChildConversation, persistently

if TYPE_CHECKING:
    from ...effects.agents import SubAgents


class EngineSubAgents:
    """The port `SubAgents`, filled by the conversations of an engine. `create` creates a conversation, or returns the
    one that has this id."""

    def __init__(
        self, registry: ConversationRegistry, clock: Clock, create: Callable[[str, Opened], Awaitable[Loop]]
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._create = create

    async def find(self, child_id: str) -> ChildConversation | None:
        """See `SubAgents`."""
        try:
            loop = await self._registry.read(child_id)
        except UnknownConversation:
            return None
        return ChildConversation(self._registry, loop, self._clock)

    async def create(self, child_id: str, opened: Opened) -> ChildConversation:
        """See `SubAgents`."""
        checked_id(child_id)
        loop = await persistently(lambda: self._create_once(child_id, opened))
        return ChildConversation(self._registry, loop, self._clock)

    async def _create_once(self, child_id: str, opened: Opened) -> Loop:
        parent_id, _ = parent_of(child_id)
        async with self._registry.family(parent_id):
            return await self._create(child_id, opened)

    async def report(self, parent_id: str, report: SubAgentAsked) -> None:
        """See `SubAgents`."""
        (await self._registry.read(parent_id)).answer(report)

    async def reported(self, parent_id: str, effect_id: int) -> OpenQuestion | None:
        """See `SubAgents`."""
        state = (await self._registry.read(parent_id)).state
        known = state.question_of(effect_id) if isinstance(state, AwaitingSubAgents) else None
        return None if known is None else OpenQuestion(known.call_id, known.questions, known.since)


if TYPE_CHECKING:
    _FILLS: type[SubAgents] = EngineSubAgents
