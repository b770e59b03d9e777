"""Agents that start sub-agents, and a model that answers each of them by a script of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.engine.conversation import Conversation
from turnwise.states import SpawnSubAgent, SubAgentFinished
from turnwise.testing import FunctionLlm, call

GO = "Go."
"""What the user says to the agent that starts the others."""


class FamilyLlm(FunctionLlm):
    """A model for several agents. `scripts` has the answers of each, by the first thing that was said to it; an answer
    may also be a function without arguments that returns one, or a coroutine function. A request for which no answer is
    left fails."""

    def __init__(self, scripts: Mapping[str, Iterable[Any]]) -> None:
        super().__init__(self._answer)
        self._scripts = {text: list(answers) for text, answers in scripts.items()}

    def asked_by(self, text: str) -> list[ModelRequest]:
        """Return the requests of the agent to which this was said first."""
        return [request for request in self.requests if first_text(request) == text]

    async def _answer(self, request: ModelRequest) -> Any:
        answer = self._scripts[first_text(request)].pop(0)
        answer = answer() if callable(answer) else answer
        return await answer if hasattr(answer, "__await__") else answer


def first_text(request: ModelRequest) -> str:
    """Return the first thing that was said to the agent of this request."""
    return next(str(message["content"]) for message in request.messages if message["role"] == "user")


def spawn(*tasks: str | Mapping[str, Any]) -> ModelAnswer:
    """Return an answer that starts sub-agents with these tasks."""
    return call("spawn_agents", tasks=list(tasks))


def results_in(request: ModelRequest) -> list[str]:
    """Return the results of calls that a request holds, in order."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def outcomes_in(result: str) -> list[tuple[str, str]]:
    """Return the status and the text of each sub-agent, from the result of the call that started them. A request marks
    a result as an error if one of them has not completed."""
    return [(agent["status"], agent["result"]) for agent in json.loads(result.removeprefix("Error: "))["agents"]]


async def spawned(conversation: Conversation) -> list[int]:
    """Return the effects by which sub-agents were started, in order; each once, also if it was asked for again."""
    effects = (effect for entry in await conversation.events() for effect in entry.effects)
    return list(dict.fromkeys(effect.effect_id for effect in effects if isinstance(effect, SpawnSubAgent)))


async def finished(conversation: Conversation) -> list[int]:
    """Return the effects whose sub-agents have reported their end, in the order of the reports."""
    events = (entry.event for entry in await conversation.events())
    return [event.effect_id for event in events if isinstance(event, SubAgentFinished)]
