"""The models of simulated agents: what they say and call follows from the seed.

They are asked by the engine as any model is. They use the tools for agents above all, call some that they were not
offered, take their time, fail, and hang.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....states.policy import ModelSpec
from ....states.values.messages import Usage
from ....states.values.value import FailureKind
from ..environment.random_source import RandomSource
from ..world.performers import World
from .tree import Tree
from .vocabulary import BUILT_IN, CHILDREN, USAGE

if TYPE_CHECKING:
    from ....effects.model.port import ModelAnswer, ModelCall, ModelRequest, Token

MAILS = 16
"""How many messages models write to other agents in a simulation: without an end, no simulation would have one."""

WEIGHTS = {
    "send_user_message": 4,
    "send_agent_message": 4,
    "spawn_agents": 5,
    "transfer_to": 1,
    "ask_user_question": 2,
}
"""How often models use each of the built-in tools for agents, where they are offered."""

FAILURES: tuple[FailureKind, ...] = ("rate_limit", "server_error", "timeout", "authentication", "context_window")


class SimulatedModels:
    """What all models of a simulation have in common."""

    def __init__(self, chance: RandomSource, world: World, tree: Tree) -> None:
        self.world = world
        self._chance = chance
        self._tree = tree
        self._mails = MAILS
        self._children = CHILDREN

    async def answer(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer a request. Raises `LlmFailure`, and whatever else models may raise."""
        from ....effects.model.port import LlmFailure, ModelAnswer, Token

        chance = self._chance
        if self.world.calm:
            return ModelAnswer(content="That is all.", usage=USAGE)
        if chance.probably(0.03):
            await self.world.take_long()
        for number in range(chance.pick((0, 0, 2))):
            show(Token(f"{number} "))
            await self.world.take_time()
        await self.world.take_time()
        if chance.probably(0.08):
            raise LlmFailure(chance.pick(FAILURES), "It failed.", chance.pick((None, 3.0)))
        if chance.probably(0.01):
            raise RuntimeError("something went wrong")
        calls = self._calls(request) if chance.probably(0.65) else ()
        content = "" if calls or chance.probably(0.05) else f"Well, {chance.below(1_000)}."
        return ModelAnswer(content=content, tool_calls=calls, usage=USAGE)

    def _calls(self, request: ModelRequest) -> tuple[ModelCall, ...]:
        from ....effects.model.port import ModelCall

        offered = [each["function"]["name"] for each in request.tools]
        names = [self._tool(offered) for _ in range(self._chance.pick((1, 1, 1, 2, 3)))]
        return tuple(ModelCall(f"call-{place}", name, self._arguments(name)) for place, name in enumerate(names))

    def _tool(self, offered: list[str]) -> str:
        """A tool to call: often one for agents, seldom one that is not offered."""
        chance = self._chance
        if chance.probably(0.05):
            return chance.pick(("break", *BUILT_IN))
        for_agents = {name: WEIGHTS[name] for name in offered if name in WEIGHTS and self._may_use(name)}
        others = [name for name in offered if name not in WEIGHTS and self._may_use(name)]
        return chance.weighted(for_agents) if for_agents and chance.probably(0.8) else chance.pick(others or ["break"])

    def _may_use(self, name: str) -> bool:
        if name in ("spawn_agents", "my_spawn"):
            return self._children > 0
        return self._mails > 0 or name not in ("send_user_message", "send_agent_message", "my_respond")

    def _arguments(self, name: str) -> str:
        arguments = self._fitting(name)
        if self._chance.probably(0.03):
            arguments = self._chance.pick(({}, {"unknown": 1}, {**arguments, "more": True}))
        return json.dumps(arguments)

    def _fitting(self, name: str) -> dict[str, Any]:
        chance = self._chance
        match name:
            case "send_user_message":
                self._mails -= 1
                return {"text": f"The user should know {chance.below(1_000)}."}
            case "send_agent_message":
                self._mails -= 1
                agents = [*self._tree.agents, self._tree.stranger, "nobody"]
                to = chance.pick((None, chance.pick(agents), chance.pick(agents)))
                text = {"text": f"You should know {chance.below(1_000)}.", "silent": chance.probably(0.3)}
                return text if to is None else {**text, "agent_id": to}
            case "spawn_agents":
                tasks = [self._task() for _ in range(chance.number(1, max(1, self._children)))]
                self._children -= len(tasks)
                return {"tasks": tasks}
            case "my_spawn":
                self._children -= 1
            case "my_respond":
                self._mails -= 1
            case "transfer_to":
                return {"profile": chance.pick(("one", "two", "nowhere"))}
            case "ask_user_question":
                option = {"label": "6:30 PM", "description": "early"}, {"label": "8:15 PM", "description": "late"}
                question = {"question": "When?", "header": "Time", "options": list(option), "multiSelect": False}
                return {"questions": [question]}
            case _:
                pass
        return {}

    def _task(self) -> str | dict[str, Any]:
        chance = self._chance
        text = f"Find out {chance.below(1_000)}."
        if chance.probably(0.5):
            return text
        more: dict[str, Any] = chance.pick(
            ({"requests": 2}, {"tokens": 20}, {"seconds": 5.0}, {"profile": "one"}, {"profile": "nowhere"}, {})
        )
        return {"text": text, **more}


class SimulatedLlm:
    """One of the models."""

    def __init__(self, spec: ModelSpec, models: SimulatedModels) -> None:
        self.name = spec.name
        self.window = spec.window
        self._models = models

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request. Raises `LlmFailure`, and whatever else models may raise."""
        return await self._models.answer(request, show)

    def estimate(self, request: ModelRequest, written: int) -> Usage:
        """What an answer that is cut off has cost: as much as one that is whole."""
        return USAGE
