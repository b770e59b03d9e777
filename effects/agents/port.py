"""The port by which performers and tools find other agents. An agent is a conversation, seen from another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...states.roles import Role


@dataclass(frozen=True)
class Agent:
    """A conversation as another one sees it.

    `state` is the literal of its state, such as `idle`. `works_for` is the agent that a background agent works for, and
    `parent` the one that started a sub-agent; either may have been deleted.
    """

    id: str
    role: Role
    state: str
    owner: str | None = None
    works_for: str | None = None
    parent: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the conversation has ended, so that it takes no more messages."""
        return self.state == "closed"


class Agents(Protocol):
    """The agents of one engine. The methods raise `StoreError` if the store cannot be read."""

    async def find(self, agent_id: str) -> Agent | None:
        """Return the agent with this id, or None if there is none."""
        ...

    async def foreground_of(self, conversation_id: str) -> Agent | None:
        """Return the agent whose user a conversation reaches.

        That is the nearest foreground agent above it, by `parent` and `works_for`; it may be closed. If there is none,
        it is the foreground agent of the same owner that was active last and is not closed. None if there is none
        either, and for a foreground agent without one above it, which reaches its user itself.
        """
        ...

    async def reachable(self, from_id: str, agent_id: str) -> Agent | None:
        """Return the agent with this id if the conversation `from_id` may write to it: both have the same owner, or
        belong to the same tree of agents. Agents of two owners never reach each other. None otherwise."""
        ...


@dataclass(frozen=True)
class ReachableAgents:
    """The agents that one conversation may write to. What a tool gets as `ToolContext.agents`.

    The methods raise `StoreError` if the store cannot be read.
    """

    conversation_id: str
    agents: Agents

    async def foreground(self) -> Agent | None:
        """Return the agent whose user this conversation reaches, see `Agents.foreground_of`."""
        return await self.agents.foreground_of(self.conversation_id)

    async def find(self, agent_id: str) -> Agent | None:
        """Return the agent with this id, or None if there is none that this conversation may write to."""
        return await self.agents.reachable(self.conversation_id, agent_id)
