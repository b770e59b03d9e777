"""A foreground agent and those that work for it, in a real engine over a real file, with models that follow scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise import AgentMail, Conversation, Engine, presets, tool
from turnwise.effects.clock import Clock
from turnwise.states import Message
from turnwise.states.events import AgentMessage
from turnwise.states.values.acts import Audience
from turnwise.states.values.messages import AgentText, read_agent_text
from turnwise.testing import RecordingChannel, ScriptedLlm, call, reply

from ..engine_scenarios import Gate

MAIL_TOOLS = ("send_user_message", "send_agent_message")


def tells_user(text: str) -> Any:
    """Return the answer of a model that has something for the user."""
    return call("send_user_message", text=text)


def tells_agent(text: str, **arguments: Any) -> Any:
    """Return the answer of a model that writes to another agent."""
    return call("send_agent_message", text=text, **arguments)


async def held(gate: Gate, text: str) -> Any:
    """Return a text of a model once the gate is open."""
    await gate()
    return reply(text)


async def later(answer: Callable[[], Any]) -> Any:
    """Return the answer of a model that depends on what is known only when it is asked."""
    return answer()


@tool(crash="pure", acts=("mail",))
async def post(target: str, text: str, audience: Audience = "agent") -> AgentMail:
    """Write to an agent without asking the directory."""
    return AgentMail(target=target, text=text, audience=audience)


@dataclass
class Team:
    """An engine whose agents have the models `llms`, by name, and what its users received."""

    engine: Engine
    llms: Mapping[str, ScriptedLlm]
    channel: RecordingChannel
    members: dict[str, Conversation] = field(default_factory=dict)

    async def foreground(self, name: str = "fg", **chosen: Any) -> Conversation:
        """Return a new agent with a user, whose model is the one of this name."""
        policy = chosen.pop("policy", presets.foreground())
        return await self._add(name, policy=policy, **chosen)

    async def background(self, works_for: Conversation | str | None, name: str = "bg", **chosen: Any) -> Conversation:
        """Return a new agent that works for another one."""
        return await self._add(name, role="background", works_for=works_for, **chosen)

    async def _add(self, name: str, **chosen: Any) -> Conversation:
        self.members[name] = await self.engine.create(model=name, **chosen)
        return self.members[name]

    def requests(self, name: str) -> list[list[str]]:
        """Return the texts of each request to the model of this name, without the system prompt."""
        return [
            [str(message["content"]) for message in request.messages if message["role"] != "system"]
            for request in self.llms[name].requests
        ]

    async def settled(self) -> None:
        """Return when all messages have been posted and no agent is busy any more."""
        steps: list[int] = []
        while True:
            for one in self._busy():
                await one.wait()
            before, steps = steps, [one.state.book.seq for one in self.members.values()]
            await self.engine.delivered()
            if not self._busy() and steps == before:
                return

    def _busy(self) -> list[Conversation]:
        """Return the agents whose turn goes on, whoever looks after it."""
        waiting = self.engine.waiting
        return [one for one in self.members.values() if one.id in waiting or one.state.ends_with_process]


@asynccontextmanager
async def team(
    database: Path | str, tools: Iterable[Any] = MAIL_TOOLS, clock: Clock | None = None, **scripts: Iterable[Any]
) -> AsyncIterator[Team]:
    """Open an engine with a model for each script, and check in the end that the scripts were followed."""
    llms = {name: ScriptedLlm(answers, name=name) for name, answers in scripts.items()}
    channel = RecordingChannel()
    models = list(llms.values())
    opening = Engine.open(
        database, model=models[0], models=models[1:], tools=list(tools), channels=[channel], clock=clock
    )
    async with opening as engine:
        yield Team(engine, llms, channel)
    for llm in models:
        llm.assert_finished()


async def received(conversation: Conversation) -> list[AgentMessage]:
    """Return the messages of other agents that a conversation took, in the order in which it took them."""
    return [entry.event for entry in await conversation.events() if isinstance(entry.event, AgentMessage)]


async def mail_in(conversation: Conversation) -> list[Message]:
    """Return the messages of other agents in the transcript."""
    return [message for message in await conversation.transcript() if message.audience is not None]


def read_back(written: str) -> AgentText:
    """Return the message for the user that a request holds."""
    message = read_agent_text(written)
    assert message is not None and message.audience == "user", f"no message for a user: {written[:80]}"
    return message
