"""The agents of one engine: the directory that finds them, and the performers of the effects that concern others.

It is built before the conversations of the engine are opened and closed before they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ...effects.channels.delivery import CLOSING_TIMEOUT
from ...effects.clock import Clock
from ...effects.dispatcher import Performer
from ...effects.retry_queues import Resumable, RetryQueues
from ...effects.sub_agents import SubAgentPerformer
from ...effects.tools.registry import ToolRegistry
from ...states.effects import AnswerSubAgent, Effect, SendToAgent, SpawnSubAgent
from ...states.events import Opened
from ..conversations.registry import ConversationRegistry
from ..loop import Loop
from ..ports import Observer
from .child_answers import ChildAnswerPerformer
from .directory import Directory
from .mail import MailPerformer
from .orphans import Orphans
from .sub_agents import EngineSubAgents
from .wake_ups import WakeUps

if TYPE_CHECKING:
    from ...persistence.ports import Store


class EngineAgents:
    """The agents of one engine.

    `create(conversation_id, opened)` creates a conversation, or returns the loop of the one that has this id. The store
    and `create` are used only while the engine is open. Close this before the conversations are closed.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        registry: ConversationRegistry,
        clock: Clock,
        create: Callable[[str, Opened], Awaitable[Loop]],
    ) -> None:
        self.directory = Directory(store)
        self.queues = RetryQueues(clock)
        self.mail = MailPerformer(self.queues, store, self.directory, registry, clock)
        self.sub_agents = EngineSubAgents(registry, clock, create)
        self.orphans = Orphans(registry, store, clock)
        self._answers = ChildAnswerPerformer(self.queues, store, registry, clock)
        self._store = store
        self._clock = clock
        self.wake_ups = WakeUps(store, registry, clock)

    def performers(self, tools: ToolRegistry) -> Mapping[type[Effect], Performer]:
        """Return what carries out the effects that concern other agents; `tools` are those of the engine."""
        spawning = SubAgentPerformer(self.sub_agents, tools, self._clock)
        return {SendToAgent: self.mail, SpawnSubAgent: spawning, AnswerSubAgent: self._answers}

    @property
    def observers(self) -> tuple[Observer, ...]:
        """What sees the steps of conversations: what ends sub-agents for which nobody waits, and the timer of
        wake-ups."""
        return (self.orphans, self.wake_ups)

    @property
    def resumers(self) -> Mapping[type[Effect], Resumable]:
        """What goes on with the effects that an earlier process left in the outbox."""
        return {SendToAgent: self.mail, AnswerSubAgent: self._answers}

    async def open(self) -> None:
        """Go on with what an earlier process has left, once its conversations are taken over."""
        await self.orphans.end_at_rest(self._store())
        self.wake_ups.open()

    async def drop(self, conversation_id: str) -> None:
        """Stop sending for a conversation that was deleted."""
        await self.queues.drop(conversation_id)

    async def wait_until_tried(self) -> None:
        """Return when each message so far was posted once, or waits behind one that could not be."""
        await self.queues.wait_until_tried()

    async def close(self) -> None:
        """Stop sending, once each message was tried. Those that have not arrived stay in the outbox."""
        await self.wake_ups.close()
        await self.queues.close(CLOSING_TIMEOUT)
        await self.orphans.close()
