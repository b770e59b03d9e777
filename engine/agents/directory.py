"""The directory of agents, read from the store.

Nothing is kept in memory: whom an agent works for, and who was active last, stands in the store, which other engines
may share.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ...effects.agents import Agent
from ...states.errors import InvalidInput, UnknownConversation
from ..requests import checked_id

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.summaries import Summary

PAGE = 20
"""How many foreground conversations of an owner are looked at together: the newest is hardly ever closed."""


class Directory:
    """The port `Agents`, filled by the store of an engine, which is opened later."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def find(self, agent_id: str) -> Agent | None:
        """See `Agents`."""
        try:
            loaded = await self._store().load(checked_id(agent_id))
        except (InvalidInput, UnknownConversation):
            return None
        context = loaded.context
        return Agent(
            id=agent_id,
            role=context.role,
            state=loaded.state.type,
            owner=context.owner,
            works_for=context.works_for,
            parent=context.parent,
        )

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
        return await self._store().list(owner=owner, role="foreground", limit=PAGE, before=before)


def _belong_to_two_owners(one: Agent, other: Agent) -> bool:
    return one.owner is not None and other.owner is not None and one.owner != other.owner
