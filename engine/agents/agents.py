"""The agents of one engine: the directory that finds them, and the performers of the effects that concern others.

They are built before the conversations of the engine are opened, and closed before they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from ...effects.agents import Agent
from ...effects.channels.delivery import CLOSING_TIMEOUT
from ...effects.clock import Clock
from ...effects.dispatcher import Performer
from ...effects.retry_queues import Admit, Resumable, RetryQueues
from ...effects.sub_agents import SubAgentPerformer
from ...effects.tools.registry import ToolRegistry
from ...persistence.summaries import ConversationFilter, checked_id
from ...states.effects import AnswerSubAgent, Effect, SendToAgent, SpawnSubAgent
from ...states.errors import InvalidInput, UnknownConversation
from ..ports import Observer
from ..registry import ConversationRegistry
from .mail import ChildAnswerPerformer, MailPerformer
from .sub_agents import EngineSubAgents, Orphans
from .wake_ups import WakeUps

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.summaries import Summary


class EngineAgents:
    """The agents of one engine.

    The store is used only while the engine is open. Close this before the conversations are closed.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        registry: ConversationRegistry,
        clock: Clock,
        admit: Admit | None = None,
        *,
        wakes: bool = True,
    ) -> None:
        """`admit` is awaited before each attempt to post a message. Unless it `wakes`, somebody else knows when
        conversations wake up."""
        self.directory: Directory = Directory(store)
        self.queues: RetryQueues = RetryQueues(clock, admit=admit)
        self.mail: MailPerformer = MailPerformer(self.queues, store, self.directory, registry, clock)
        self.sub_agents: EngineSubAgents = EngineSubAgents(registry, clock)
        self.orphans: Orphans = Orphans(registry, store, clock)
        self._answers = ChildAnswerPerformer(self.queues, store, registry, clock)
        self._store = store
        self._clock = clock
        self.wake_ups: WakeUps = WakeUps(store, registry, clock, has_timer=wakes)

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

    async def stop(self) -> None:
        """Stop sending, once each message was tried. Those that have not arrived stay in the outbox."""
        await self.wake_ups.stop()
        await self.queues.stop(CLOSING_TIMEOUT)
        await self.orphans.stop()


PAGE = 20
"""How many foreground conversations of an owner are looked at together: the newest is hardly ever closed."""


class Directory:
    """The port `Agents`, filled by the store of an engine, which is opened later.

    Nothing is kept in memory: whom an agent works for, and who was active last, stands in the store, which other
    engines may share.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def find(self, agent_id: str) -> Agent | None:
        """See `Agents`."""
        try:
            loaded = await self._store().load(checked_id(agent_id))
        except (InvalidInput, UnknownConversation):
            return None
        return Agent(**loaded.context.header_fields, id=agent_id, state=loaded.state.type)

    async def foreground_of(self, conversation_id: str) -> Agent | None:
        """See `Agents`."""
        agent = await self.find(conversation_id)
        if agent is None:
            return None
        async for above in self._above(agent):
            if above.role == "foreground" and not _belong_to_two_owners(agent, above):
                return above
        return None if agent.role == "foreground" else await self._newest_foreground(agent)

    async def reachable(self, from_id: str, agent_id: str) -> Agent | None:
        """See `Agents`."""
        agent = await self.find(agent_id)
        sender = await self.find(from_id) if agent is not None else None
        if agent is None or sender is None or _belong_to_two_owners(sender, agent):
            return None
        has_same_owner = sender.owner is not None and sender.owner == agent.owner
        return agent if has_same_owner or await self._root(sender) == await self._root(agent) else None

    async def _above(self, agent: Agent) -> AsyncIterator[Agent]:
        """Yield the agents above this one that are stored, the nearest first."""
        seen = {agent.id}
        above: Agent | None = agent
        while above is not None and (next_id := above.parent or above.works_for) is not None and next_id not in seen:
            seen.add(next_id)
            above = await self.find(next_id)
            if above is not None:
                yield above

    async def _root(self, agent: Agent) -> str:
        """Return the id of the topmost agent, which may have been deleted."""
        top = agent
        async for above in self._above(agent):
            top = above
        return top.parent or top.works_for or top.id

    async def _newest_foreground(self, agent: Agent) -> Agent | None:
        """Return the foreground agent of the same owner that was active last and is not closed."""
        if agent.owner is None:
            return None  # conversations without an owner may belong to anybody
        before: str | None = None
        while page := await self._page(agent.owner, before):
            for summary in page:
                if summary.state != "closed":
                    return await self.find(summary.id)
            before = page[-1].cursor
        return None

    async def _page(self, owner: str, before: str | None) -> tuple[Summary, ...]:
        return await self._store().list(ConversationFilter(owner=owner, role="foreground", limit=PAGE, before=before))


def _belong_to_two_owners(one: Agent, other: Agent) -> bool:
    return one.owner is not None and other.owner is not None and one.owner != other.owner
