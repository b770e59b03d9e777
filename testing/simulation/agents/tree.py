"""The tree of agents, as stored: which conversations there are, and how they belong together."""

from __future__ import annotations

from collections.abc import Sequence

from ....states.events import Opened
from ....states.projections.transcript import Transcript
from ....states.states import AnyState, Closed, Failed, Idle, pending
from ..storage.disk import Disk, Row


class Tree:
    """The conversations on a disk. All of them belong to the tree, except those of the other `stranger`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.roots: list[str] = []
        """The agents that the application created: the one with a user first."""
        self.stranger = ""
        """A conversation of another owner, which nobody here may reach."""

    def rows(self, agent_id: str) -> Sequence[Row]:
        """The steps of an agent, also of one that was deleted."""
        return self._disk.steps_of(agent_id)

    def is_deleted(self, agent_id: str) -> bool:
        """Whether the conversation of the agent was deleted."""
        return agent_id in self._disk.deleted

    def opened(self, agent_id: str) -> Opened:
        """The first event of an agent."""
        event = self.rows(agent_id)[0].event
        assert isinstance(event, Opened)
        return event

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
        """The agents that are stored or were deleted."""
        return [*self.agents, *self._disk.deleted]

    @property
    def children(self) -> list[str]:
        """The sub-agents that are stored."""
        return [each for each in self.agents if self.opened(each).role == "sub_agent"]

    def is_reachable(self, agent_id: str, other_id: str) -> bool:
        """Whether both belong to the tree. `Pure.`"""
        return self.stranger not in (agent_id, other_id)

    def transcript(self, agent_id: str) -> Transcript:
        """What was said in the conversation of an agent, as stored."""
        transcript = Transcript()
        for row in self.rows(agent_id):
            transcript.add(row.entry)
        return transcript
