"""Reads the items of OpenAI's Responses API, in which calls and results stand beside the messages.

Sessions of openai-agents, and programs that send the output of one response with the next request, keep such items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .repairs import Repairs

PlacedItem = tuple[int, dict[str, Any]]
"""A message or an item, and its place in the list that was given."""


def as_messages(items: Iterable[PlacedItem], repairs: Repairs) -> Iterator[PlacedItem]:
    """Yield the items as messages; what is a message already is unchanged. Calls that stand side by side belong to one
    response, so they become one message."""
    calls: list[PlacedItem] = []
    for place, item in items:
        kind = None if "role" in item else item.get("type")
        if kind == "function_call":
            repairs.add(place, "A call of the Responses API was rewritten as a tool call.")
            calls.append((place, item))
            continue
        yield from _one_message(calls)
        calls = []
        if kind == "function_call_output":
            repairs.add(place, "An output of the Responses API was rewritten as the result of a tool.")
            item = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        yield place, item
    yield from _one_message(calls)


def _one_message(calls: list[PlacedItem]) -> Iterator[PlacedItem]:
    if calls:
        yield calls[0][0], {"role": "assistant", "tool_calls": [_call(item) for _, item in calls]}


def _call(item: dict[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}
