"""Builds the request to a model from the conversation so far, in a form that every provider accepts.

Each provider refuses something that others accept: arguments that are not a JSON object, names with a colon, repeated
ids, a call without its result, a history with calls but no list of tools, two messages of one role in a row, an image
in a tool's result. A conversation may outlive the choice of a provider, so a request is valid for the strictest of
them, whatever the transcript holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....states.effects import RequestLlm
from ....states.openai_writing import WireMessage
from ....states.policy import DEFAULT_SETTINGS, ModelSettings
from ....states.values.messages import Message, escape_tags
from ...wire.definitions import wire_tools
from ..port import ModelRequest, counted
from .request_digest import canonical_json
from .tool_list import list_tools
from .written_messages import WrittenMessages, WrittenRequest


def build_request(
    effect: RequestLlm, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
) -> ModelRequest:
    """The request that `effect` asks for, from the system message and the messages so far.

    `tools` are definitions in OpenAI's shape, `turn` is the number of the turn under way. A name that providers do not
    accept is sent as `legal_name(name)`, in definitions and calls alike; a call that comes back is looked up by that.
    The id of a call is replaced likewise, together with that of its result. If no tools are offered, the tools that
    were called earlier are listed as removed, and none may be called.

    Images are sent as parts of a user's message. Images of results stand in one such message behind the last result of
    their round, since some providers refuse them in results; a text names the tool that returned them. Consecutive
    messages of one role are merged. `Pure.`
    """
    written = WrittenMessages(effect.model, write_system(system))
    history = list(messages)
    written.follow(history, turn)
    return compose_request(effect, written.request(history, ()), OfferedTools(tools))


class OfferedTools:
    """Definitions of tools that every provider accepts, their `canonical` JSON, and their list for the system message;
    these are empty without tools. `left_out` are the tools that cannot be offered, by name, each with the reason as a
    sentence. Made once for all requests."""

    def __init__(self, definitions: Sequence[WireMessage]) -> None:
        written = wire_tools(definitions)
        self.definitions: tuple[WireMessage, ...] = tuple(map(_escaped, written.definitions))
        self.left_out = written.left_out
        self.canonical = canonical_json(self.definitions) if self.definitions else ""
        self.listed = list_tools(self.definitions)


def compose_request(
    effect: RequestLlm,
    written: WrittenRequest,
    tools: OfferedTools,
    conversation_id: str = "",
    settings: ModelSettings = DEFAULT_SETTINGS,
) -> ModelRequest:
    """The request that `effect` asks for in this conversation, with all its written messages. `Pure.`"""
    request = ModelRequest(
        model=effect.model,
        messages=written.messages,
        tools=tools.definitions or tuple(map(_removed_tool, written.called)),
        tool_choice=effect.tool_choice if tools.definitions or not written.called else "none",
        conversation_id=conversation_id,
        settings=settings,
    )
    return counted(request, written.volume)


def write_system(system: str) -> tuple[WireMessage, ...]:
    """The system message as it is sent; empty if there is none. `Pure.`"""
    return ({"role": "system", "content": system},) if system.strip() else ()


def _escaped(value: Any) -> Any:
    """JSON with the tags of agents' messages escaped in all its texts: the server of a tool wrote them."""
    match value:
        case str():
            return escape_tags(value)
        case dict():
            return {name: _escaped(each) for name, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case _:
            return value


def _removed_tool(name: str) -> dict[str, Any]:
    description = "This tool is no longer available."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
