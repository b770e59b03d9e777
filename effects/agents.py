"""The ports by which performers and tools find other agents, and start sub-agents and follow them.

An agent is a conversation, seen from another one. A sub-agent is a conversation of its own, which goes on whether or
not anybody waits for it. The engine implements both ports over its conversations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..states.events import Opened, SubAgentAsked, UserMessage
from ..states.header import Header
from ..states.values.messages import Usage
from ..states.values.questions import OpenQuestion
from ..states.values.turn import EndedStatus


class Agent(Header):
    """A conversation as another one sees it. `state` is the literal of its state, such as `idle`. The agents that it
    names, `works_for` and `parent`, may have been deleted."""

    id: str
    state: str

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


@dataclass(frozen=True)
class ChildOutcome:
    """How the turn of a sub-agent ended, as its log has it. `text` is its last text, or why there is none; it may be
    empty. With `is_json` it is a typed answer."""

    status: EndedStatus
    text: str
    is_json: bool = False


class SubAgent(Protocol):
    """The conversation of one sub-agent, whoever drives it.

    Every coroutine raises `UnknownConversation` once it is deleted, and `StoreError` if its log cannot be read. While
    the store takes nothing, they wait for it.
    """

    @property
    def seq(self) -> int:
        """The newest step that is known here."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether its turn has ended. A sub-agent has only one."""
        ...

    @property
    def asks(self) -> OpenQuestion | None:
        """What it asks the user now."""
        ...

    async def begin(self, task: UserMessage) -> None:
        """Give it its task. It takes a task once under its `event_id`, and none after its end."""
        ...

    async def beyond(self, seq: int) -> None:
        """Return when it has made a step after the step `seq`."""
        ...

    async def close(self) -> None:
        """Tell it to end. Returns when that is stored; tools that run delay its end."""
        ...

    async def outcome(self) -> ChildOutcome:
        """Return how it ended. To be asked for when it has ended."""
        ...

    async def usage(self) -> Usage:
        """Return what it has cost so far, its own sub-agents included."""
        ...


class SubAgents(Protocol):
    """The sub-agents of an engine. The coroutines raise `StoreError`."""

    async def find(self, child_id: str) -> SubAgent | None:
        """Return the sub-agent with this id, or None if there is none."""
        ...

    async def create(self, child_id: str, opened: Opened) -> SubAgent:
        """Create a sub-agent with this first event; if there is one with this id, it is returned as it is.
        Raises `InvalidInput` for an id that is longer than ids may be, and `UnknownConversation` if its parent was
        deleted."""
        ...

    async def report(self, parent_id: str, report: SubAgentAsked) -> None:
        """Report to a parent what a sub-agent asks its user."""
        ...

    async def reported(self, parent_id: str, effect_id: int) -> OpenQuestion | None:
        """Return what the parent knows that the sub-agent of this effect asks."""
        ...
