"""The tree of agents, as stored: which conversations there are, and how they belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....states.events import Opened
from ....states.states import AnyState, Closed, Failed, Idle, pending
from ....states.transcript import Transcript
from ..storage.disk import Disk, LogKey, Row


@dataclass(frozen=True)
class AgentLog:
    """The log of one agent, as stored or as it was when the agent was deleted. Agents that were created under the id of
    a deleted one have logs of their own. `began` and `ended` count the lines of the trace: the latter is None of an
    agent that is stored."""

    key: LogKey
    rows: Sequence[Row]
    began: int
    ended: int | None

    @property
    def agent_id(self) -> str:
        """The id of the agent."""
        return self.key[0]

    @property
    def is_stored(self) -> bool:
        """Whether the agent is stored, so it was not deleted."""
        return self.ended is None

    @property
    def opened(self) -> Opened:
        """The first event of the agent."""
        event = self.rows[0].event
        assert isinstance(event, Opened)
        return event

    def is_during(self, other: AgentLog) -> bool:
        """Whether this agent was created while the other one was stored."""
        return other.began < self.began and (other.ended is None or self.began < other.ended)

    def transcript(self) -> Transcript:
        """What was said in the conversation of the agent."""
        transcript = Transcript()
        for row in self.rows:
            transcript.add(row.entry)
        return transcript


class Tree:
    """The conversations on a disk. All of them belong to the tree, except those of the other `stranger`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.roots: list[str] = []
        """The agents that the application created: the one with a user first."""
        self.stranger = ""
        """A conversation of another owner, which nobody here may reach."""

    def rows(self, agent_id: str) -> Sequence[Row]:
        """The steps of the agent that is stored under this id, or that was deleted last; none if nobody ever had it."""
        return self._disk.steps_of(agent_id)

    def was_deleted(self, agent_id: str) -> bool:
        """Whether an agent with this id was deleted."""
        return agent_id in self._disk.deleted

    def logs_of(self, agent_id: str) -> list[AgentLog]:
        """The logs of all agents that have had this id: of those that were deleted, then of the stored one."""
        keys = [(agent_id, number) for number in range(len(self._disk.logs_of(agent_id)))]
        return [
            AgentLog(key, rows, self._disk.began[key], self._disk.ended.get(key))
            for key, rows in zip(keys, self._disk.logs_of(agent_id), strict=True)
        ]

    def all_logs(self) -> Iterator[AgentLog]:
        """The logs of all agents that are stored or were deleted."""
        for agent_id in self.all_agents:
            yield from self.logs_of(agent_id)

    def state(self, agent_id: str) -> AnyState:
        """The state in which an agent rests, as stored."""
        return self.rows(agent_id)[-1].state

    def is_at_rest(self, agent_id: str) -> bool:
        """Whether an agent waits for nothing but messages."""
        state = self.state(agent_id)
        return isinstance(state, Idle | Failed | Closed) and not pending(state) and state.book.wake is None

    @property
    def agents(self) -> list[str]:
        """The agents that are stored, in the order in which they were created."""
        return [each for each in self._disk.rows if each != self.stranger]

    @property
    def all_agents(self) -> list[str]:
        """The ids of the agents that are stored or were deleted."""
        return list(dict.fromkeys([*self.agents, *self._disk.deleted]))

    @property
    def children(self) -> list[str]:
        """The sub-agents that are stored."""
        return [each for each in self.agents if self.logs_of(each)[-1].opened.role == "sub_agent"]

    def is_reachable(self, agent_id: str, other_id: str) -> bool:
        """Whether both belong to the tree. `Pure.`"""
        return self.stranger not in (agent_id, other_id)
