"""Tells a provider up to where a request is the same as later ones, so that it keeps that beginning.

Anthropic keeps what ends at a breakpoint, of which a request may have four, and looks for it at the same breakpoints of
later requests, and some blocks before them. So there is one behind the system message, which the tools stand before,
one in front of the message that the turn answers, where the next turn finds it, and one behind all that stays, where
the next request of the turn does. Other providers keep beginnings by themselves; OpenAI finds them better by a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..families import maker_of
from ..port import ModelRequest

Message = dict[str, Any]

_MARK = {"type": "ephemeral"}

_ON_RESULTS = ("anthropic", "vertex_ai", "azure_ai", "bedrock")
"""The protocols in which the whole result of a tool is marked. In others a part of its text is."""

KEY = "prompt_cache_key"
"""The parameter for the key of a conversation."""

LONGEST_KEY = 64


def wants_breakpoints(model: str) -> bool:
    """Whether the provider of the model with this name keeps only what ends at a breakpoint. `Pure.`"""
    maker = maker_of(model)
    return maker is not None and maker.needs_breakpoints


def with_breakpoints(request: ModelRequest, protocol: str) -> tuple[Sequence[Message], Sequence[Message]]:
    """The messages and the tools of a request with breakpoints. Those of the request are not changed. `Pure.`"""
    messages, tools = list(request.messages), list(request.tools)
    if messages and messages[0]["role"] == "system":
        messages[0] = _marked(messages[0], protocol)
    elif tools:
        tools[-1] = {**tools[-1], "cache_control": _MARK}
    for place in _places(messages, request.stable):
        messages[place] = _marked(messages[place], protocol)
    return messages, tools


def _places(messages: Sequence[Message], stable: int) -> set[int]:
    """The places in front of the last message of a user, and of the last message that stays."""
    asked = next((place for place in range(stable - 1, -1, -1) if messages[place]["role"] == "user"), 0)
    return {place for place in (asked - 1, stable - 1) if place >= 0 and messages[place]["role"] != "system"}


def _marked(message: Message, protocol: str) -> Message:
    """The message with a breakpoint at its end."""
    content = message.get("content")
    if message["role"] == "tool" and protocol in _ON_RESULTS:
        return {**message, "cache_control": _MARK}
    if calls := message.get("tool_calls"):
        return {**message, "tool_calls": [*calls[:-1], {**calls[-1], "cache_control": _MARK}]}
    if isinstance(content, list) and content:
        return {**message, "content": [*content[:-1], {**content[-1], "cache_control": _MARK}]}
    if isinstance(content, str) and content.strip():
        return {**message, "content": [{"type": "text", "text": content, "cache_control": _MARK}]}
    return message
