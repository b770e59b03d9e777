"""A conversation with the rehearsal model, as the rules of that model see it: messages and tools, no engine."""

from __future__ import annotations

import json
from typing import Any

from turnwise import ModelAnswer
from turnwise.effects.model.rehearsal import reply_to


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    """A tool all of whose parameters are required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Talk:
    """A conversation with the rehearsal model, kept as a provider would see it."""

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = tools
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str) -> ModelAnswer:
        """The model's reply to a message of the user."""
        self.messages.append({"role": "user", "content": text})
        return self._next()

    def give(self, *results: str) -> ModelAnswer:
        """The model's reply to the results of its last calls."""
        calls = self.messages[-1]["tool_calls"]
        for call, text in zip(calls, results, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return self._next()

    def _next(self) -> ModelAnswer:
        reply = reply_to(self.messages, self.tools)
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"call{len(self.messages):04}{index}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(reply.tool_calls)
            ]
        self.messages.append(message)
        return reply


def calls_of(reply: ModelAnswer) -> list[tuple[str, Any]]:
    """The calls of a reply, as pairs of name and arguments."""
    return [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]
