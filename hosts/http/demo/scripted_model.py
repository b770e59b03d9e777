"""The model that held the conversations of the demonstration before a visitor came: it says what was written for them.

The log calls it by the name of the model that answers visitors, so that each conversation goes on with that one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable

from ....effects.model.port import LlmFailure, ModelAnswer, ModelCall, ModelRequest, Token
from ....effects.model.rehearsal import RehearsalLlm
from ....states.values.messages import Usage

Answer = ModelAnswer | LlmFailure

PRICES = 0.40e-6, 1.60e-6
"""US dollars for one token in and for one token out, so that the demonstration shows costs."""


def says(text: str, *calls: ModelCall, thinking: str = "") -> ModelAnswer:
    """Return an answer with a text and calls of tools. `Pure.`"""
    return ModelAnswer(text, thinking, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")


def call(name: str, **arguments: object) -> ModelCall:
    """Return a call of a tool. `Pure.`"""
    return ModelCall("call_0", name, json.dumps(arguments, ensure_ascii=False))


class ScriptedModel:
    """Gives each conversation the answers written for it, and answers all others as the rehearsal model does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._scripts: dict[str, deque[Answer]] = {}
        self._rehearsal = RehearsalLlm(delay=0)

    def write(self, conversation_id: str, answers: Iterable[Answer]) -> None:
        """Have these answers given in a conversation, in this order."""
        self._scripts[conversation_id] = deque(answers)

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request. Raises `LlmFailure` where one was written."""
        script = self._scripts.get(request.conversation_id)
        if not script:
            return await self._rehearsal.complete(request, show)
        answer = script.popleft()
        if isinstance(answer, LlmFailure):
            raise answer
        return _priced(answer, request)


def _priced(answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
    """Return the answer with a usage: four characters count as a token."""
    read = len(json.dumps([request.messages, request.tools])) // 4
    written = (len(answer.content) + len(answer.thinking) + sum(len(call.arguments) for call in answer.tool_calls)) // 4
    cost = read * PRICES[0] + written * PRICES[1]
    usage = Usage(
        input_tokens=read, output_tokens=written, cost=round(cost, 6), reasoning_tokens=len(answer.thinking) // 4
    )
    return ModelAnswer(
        answer.content, answer.thinking, tool_calls=answer.tool_calls, finish_reason=answer.finish_reason, usage=usage
    )
