"""Builds the request to a model from the conversation so far, in a form that every provider accepts.

Each provider refuses something that others accept: arguments that are not a JSON object, names with a colon, repeated
ids, a call without its result, a history with calls but no list of tools, two messages of one role in a row, an image
in a tool's result. A conversation may outlive the choice of a provider, so a request is valid for the strictest of
them, whatever the transcript holds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json

from ....states.effects import RequestLlm
from ....states.values.images import Image
from ....states.values.messages import Message, ToolCall
from ..port import ModelRequest
from .call_ids import CallIds
from .message_order import WireMessage, arrange, parts_of
from .request_digest import canonical_json

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_RESULT = "Error: there is no result."
_EMPTY_RESULT = "(nothing)"  # some providers refuse a result without text

RESULT_IMAGES = "Returned by the tool "
"""The beginning of the text in front of the images of a tool's result."""


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
    segment = write_segment(messages, CallIds(), effect.model, turn)
    return compose_request(effect, system, segment, OfferedTools(tools))


@dataclass(frozen=True)
class Segment:
    """Consecutive messages of a request as they are sent, and the names of the tools that they call, each once."""

    messages: tuple[WireMessage, ...] = ()
    called: tuple[str, ...] = ()

    def __add__(self, other: Segment) -> Segment:
        return Segment(self.messages + other.messages, tuple(dict.fromkeys(self.called + other.called)))


def write_segment(messages: Sequence[Message], call_ids: CallIds, model: str, turn: int) -> Segment:
    """The messages as they are sent to the model in this turn, with ids of calls from `call_ids`."""
    entries = _pair_results(messages)
    written = [wire_message for entry in entries for wire_message in _write(entry, call_ids, model, turn)]
    called = dict.fromkeys(legal_name(call.name) for entry in entries for call in entry.message.tool_calls)
    return Segment(tuple(arrange(written, model)), tuple(called))


class OfferedTools:
    """Definitions of tools that every provider accepts, and their `canonical` JSON, which is empty without tools. Made
    once for all requests."""

    def __init__(self, definitions: Sequence[WireMessage]) -> None:
        self.definitions = tuple(map(_with_legal_name, definitions))
        self.canonical = canonical_json(self.definitions) if self.definitions else ""


def compose_request(
    effect: RequestLlm, system: str, segment: Segment, tools: OfferedTools, conversation_id: str = ""
) -> ModelRequest:
    """The request that `effect` asks for in this conversation, from a segment with all its messages. `Pure.`"""
    return ModelRequest(
        model=effect.model,
        messages=(*write_system(system), *segment.messages),
        tools=tools.definitions or tuple(map(_removed_tool, segment.called)),
        tool_choice=effect.tool_choice if tools.definitions or not segment.called else "none",
        conversation_id=conversation_id,
    )


def write_system(system: str) -> tuple[WireMessage, ...]:
    """The system message as it is sent; empty if there is none. `Pure.`"""
    return ({"role": "system", "content": system},) if system.strip() else ()


def legal_name(name: str) -> str:
    """The name under which providers accept a tool: letters, digits, `_` and `-`, at most 64 characters.

    A legal name is unchanged. Any other name gets a fingerprint at its end, so that different names stay different.
    `Pure.`
    """
    if _LEGAL_NAME.fullmatch(name):
        return name
    fingerprint = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:55]}_{fingerprint}"


@dataclass(frozen=True)
class _MessageWithResults:
    """A message with the result of each of its calls."""

    message: Message
    results: list[Message | None]


def _pair_results(messages: Sequence[Message]) -> list[_MessageWithResults]:
    """Pair each result with the latest call of its id that has none yet. A result without a call is left out."""
    entries: list[_MessageWithResults] = []
    open_calls: dict[str, deque[tuple[_MessageWithResults, int]]] = {}
    for message in messages:
        if message.role == "tool":
            if waiting := open_calls.get(message.tool_call_id or ""):
                entry, index = waiting.popleft()
                entry.results[index] = message
            continue
        entry = _MessageWithResults(message, [None] * len(message.tool_calls))
        entries.append(entry)
        for call in message.tool_calls:
            open_calls[call.call_id] = deque()
        for index, call in enumerate(message.tool_calls):
            open_calls[call.call_id].append((entry, index))
    return entries


def _write(entry: _MessageWithResults, call_ids: CallIds, model: str, turn: int) -> Iterator[WireMessage]:
    """The messages that an entry is sent as; none if it is empty."""
    message = entry.message
    if message.role == "user":
        if message.text.strip() or message.images:
            yield {"role": "user", "content": _content(message)}
        return
    text = message.text if message.text.strip() else None
    ids = [call_ids.assign(call.call_id) for call in message.tool_calls]
    if text is None and not ids:
        return
    written: WireMessage = {"role": "assistant", "content": text}
    if ids:
        written["tool_calls"] = [_call(*pair) for pair in zip(message.tool_calls, ids, strict=True)]
    if message.opaque and message.turn == turn and message.model == model:
        written["thinking_blocks"] = list(message.opaque)
        if message.thinking:
            written["reasoning_content"] = message.thinking
    yield written
    yield from (_result(*pair) for pair in zip(entry.results, ids, strict=True))
    if images := [part for index, call_id in enumerate(ids) for part in _images_of(entry, index, call_id)]:
        yield {"role": "user", "content": images}


def _content(message: Message) -> str | list[WireMessage]:
    """The content of a user's message: a text, or parts if there are images."""
    if not message.images:
        return message.text
    return [*parts_of(message.text), *map(_image, message.images)]


def _images_of(entry: _MessageWithResults, index: int, call_id: str) -> Iterator[WireMessage]:
    """The images of one result, behind a text that names the tool; empty if there are none."""
    result = entry.results[index]
    if result is not None and result.images:
        name = legal_name(entry.message.tool_calls[index].name)
        yield from parts_of(f"{RESULT_IMAGES}{name} (call {call_id}), not sent by the user:")
        yield from map(_image, result.images)


def _image(image: Image) -> WireMessage:
    return {"type": "image_url", "image_url": {"url": image.url}}


def _call(call: ToolCall, call_id: str) -> WireMessage:
    arguments = call.raw_arguments if _is_json_object(call.raw_arguments) else "{}"
    return {"id": call_id, "type": "function", "function": {"name": legal_name(call.name), "arguments": arguments}}


def _result(result: Message | None, call_id: str) -> WireMessage:
    return {"role": "tool", "tool_call_id": call_id, "content": _NO_RESULT if result is None else _result_text(result)}


def _result_text(result: Message) -> str:
    """The text of a result, which is never empty. That of an error says that it is one."""
    needs_mark = result.error and not _says_failure(result.text)
    text = f"Error: {result.text}" if needs_mark else result.text
    count = len(result.images)
    note = f"({count} {'images' if count > 1 else 'image'}: see below.)" if count else ""
    return "\n\n".join(part for part in (text, note) if part.strip()) or _EMPTY_RESULT


def _says_failure(text: str) -> bool:
    """Whether the text itself says that something failed: JSON whose `success` is false, as of a refused act."""
    return _is_json_object(text) and from_json(text).get("success") is False


def _is_json_object(text: str) -> bool:
    """Whether every JSON parser reads the text as an object, also those that accept no NaN and no lone surrogates."""
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _with_legal_name(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "name": legal_name(tool["function"]["name"])}}


def _removed_tool(name: str) -> dict[str, Any]:
    description = "This tool is no longer available."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
