"""What the tests of the reply flow and of agents that write to each other have in common, without an engine.

The conversation's driver plays people, the model and tools; here it also plays the router and the recall, and shows
what a request would hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.effects.model.request import AssembledContext, assemble_context
from turnwise.states import (
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Cancelling,
    Compacting,
    Event,
    InDoubt,
    LlmRequesting,
    MemoryRecalled,
    MemoryRecalling,
    ModelSpec,
    Opened,
    Policy,
    Profile,
    ProfileSelected,
    ProfileSelecting,
    RecallMemory,
    RetryWaiting,
    SelectProfile,
    SendToAgent,
    SpawnSubAgent,
    State,
    Step,
    SubAgentFinished,
    Summarizing,
    ToolAborted,
    ToolExecuting,
    Usage,
    Verifying,
)

from ..conversation import Conversation, asking, call, completing, spawning

BUILDER = "builder"
"""An agent that works for the one that a test plays."""

COOK = Profile(name="cook", prompt="You cook.")
GUIDE = Profile(name="guide", prompt="You guide.")


class Flow(Conversation):
    """A conversation whose turns may begin with a router and a recall."""

    def __init__(self, policy: Policy | None = None, /, *, system: str = "", **rules: Any) -> None:
        self.system = system
        super().__init__(policy, **rules)

    def happens(self, kind: type[Event], /, **fields: Any) -> Step:
        """Let this event happen."""
        return super().happens(kind, **({"system": self.system, **fields} if kind is Opened else fields))

    def router_chooses(self, profile: str) -> Step:
        """The router answers with this name."""
        return self.happens(ProfileSelected, effect_id=self.flying(SelectProfile), profile=profile)

    def recall_finds(self, block: str = "", **fields: Any) -> Step:
        """The recall ends with this block for the system message."""
        return self.happens(MemoryRecalled, effect_id=self.flying(RecallMemory), block=block, **fields)

    def begins(self, text: str = "Hello", profile: str = "cook", block: str = "") -> None:
        """A person says something, and the turn comes as far as its first model request."""
        self.says(text)
        self.goes_on(profile, block)

    def goes_on(self, profile: str = "cook", block: str = "") -> None:
        """The router and the recall answer, as far as they are asked."""
        if self.state.type == "profile_selecting":
            self.router_chooses(profile)
        if self.state.type == "memory_recalling":
            self.recall_finds(block)

    def hears(self, text: str = "The build is done.", **fields: Any) -> Step:
        """Another agent has something for the user."""
        return self.agent_says(text, **{"origin": BUILDER, "audience": "user", **fields})

    def entered(self, text: str) -> int:
        """How often this text entered the transcript as a message."""
        return [message.text for message in self.transcript if message.role == "user"].count(text)

    def mail(self) -> list[SendToAgent]:
        """What was sent to other agents so far, in order."""
        return [effect for entry in self.history.log for effect in entry.effects if isinstance(effect, SendToAgent)]

    def framed(self) -> AssembledContext:
        """What the newest model request holds."""
        return assemble_context(self.requests()[-1], self.history.context, self.said, self.state.book.turn)


def sent(conversation: Flow) -> list[str]:
    """The texts of the newest model request, in order."""
    return [message.text for message in conversation.framed().messages]


# --- every busy state

EVERYTHING = Policy(
    models=(ModelSpec(name="first", window=100),),
    profiles=(COOK, GUIDE),
    route=True,
    recall=True,
    verify=2,
    summarize=True,
    when_busy="queue",
)
"""Rules under which a turn can come to every busy state."""


def _recalling(flow: Flow) -> None:
    flow.says()
    flow.router_chooses("cook")


def _retrying(flow: Flow) -> None:
    flow.begins()
    flow.model_fails()


def _running(flow: Flow) -> None:
    flow.begins()
    flow.model_calls("work", "next")


def _asking(flow: Flow) -> None:
    flow.begins()
    flow.model_calls(asking())
    flow.tool_asks()


def _awaiting_approval(flow: Flow) -> None:
    flow.begins()
    flow.model_calls(call("risky", approval=True))


def _awaiting_children(flow: Flow) -> None:
    flow.begins()
    flow.model_calls(spawning())
    flow.tool_spawns("spawn", "Look it up.")


def _verifying(flow: Flow) -> None:
    flow.begins()
    flow.model_calls(completing(), content="Here it is.")
    flow.tool_claims()


def _summarizing(flow: Flow) -> None:
    flow.begins()
    flow.model_says("Here it is.")


def _condensing(flow: Flow) -> None:
    flow.begins()
    flow.model_calls("work", usage=Usage(input_tokens=100))


def _cancelling(flow: Flow) -> None:
    _running(flow)
    flow.cancels()


def _in_doubt(flow: Flow) -> None:
    _running(flow)
    flow.resumes()
    flow.tool_was_interrupted("work")


BUSY: dict[type[State], Callable[[Flow], object]] = {
    ProfileSelecting: Flow.says,
    MemoryRecalling: _recalling,
    LlmRequesting: Flow.begins,
    RetryWaiting: _retrying,
    ToolExecuting: _running,
    AwaitingUserResponse: _asking,
    AwaitingApproval: _awaiting_approval,
    AwaitingSubAgents: _awaiting_children,
    Verifying: _verifying,
    Summarizing: _summarizing,
    Compacting: _condensing,
    Cancelling: _cancelling,
    InDoubt: _in_doubt,
}
"""How a conversation comes to rest in each busy state."""


def busy_in(kind: type[State]) -> Flow:
    """A conversation that rests in this busy state."""
    flow = Flow(EVERYTHING)
    BUSY[kind](flow)
    flow.rests_in(kind)
    return flow


def stopped(flow: Flow) -> Flow:
    """The conversation after its turn was cancelled, if that is still to be done, and everything acknowledged that."""
    if not isinstance(flow.state, Cancelling):
        flow.cancels()
    while isinstance(flow.state, Cancelling):
        effect_id = min(flow.state.round.effect_ids)
        if flow.state.in_flight()[effect_id] is SpawnSubAgent:
            flow.happens(SubAgentFinished, effect_id=effect_id, outcome="", status="cancelled")
        else:
            flow.happens(ToolAborted, effect_id=effect_id)
    return flow
