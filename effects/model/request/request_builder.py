"""What a model is sent: the conversation so far, in the shape that every provider takes.

Providers refuse what others let pass: arguments that are no JSON object, names with a colon, repeated ids, a call
without its result, a history with calls but no list of tools, two messages of one role in a row, an image in a tool's
result. A conversation lasts longer than a choice of provider, so a request is valid for the strictest of them, whatever
the transcript holds (case P35).
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
from .call_ids import Ids
from .message_order import Body, ordered, parts_of
from .request_digest import canonical

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_RESULT = "Error: there is no result."
_NOTHING = "(nothing)"  # a result without a text is refused by some providers

RESULT_IMAGES = "Returned by the tool "
"""How the text begins that stands in front of the images of a tool's result."""


def build_request(
    effect: RequestLlm, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
) -> ModelRequest:
    """The request that `effect` asks for, from the transcript up to now.

    `tools` are definitions in OpenAI's shape, `turn` is the number of the turn that runs. A name that providers do
    not take goes out as `legal_name(name)`, in definitions and calls alike; who looks up a call that comes back
    compares by that. The id of a call is exchanged likewise, together with that of its result. If none of the tools
    is offered any more, those that history calls are listed as gone, and none may be called.

    Images go out as parts of a person's message. Those of tools' results stand in one such message behind the last
    result of their round, since some providers refuse them in the results; a text says whose they are. Neighbours of
    one role become one message. `Pure.`
    """
    passage = write_passage(messages, Ids(), effect.model, turn)
    return put_together(effect, system, passage, Offer(tools))


@dataclass(frozen=True)
class Passage:
    """Messages as they go out, and the names that they call, each once."""

    bodies: tuple[Body, ...] = ()
    called: tuple[str, ...] = ()

    def __add__(self, other: Passage) -> Passage:
        return Passage(self.bodies + other.bodies, tuple(dict.fromkeys(self.called + other.called)))


def write_passage(messages: Sequence[Message], ids: Ids, model: str, turn: int) -> Passage:
    """The messages as they go out to the model in this turn; the calls take their ids from `ids`."""
    entries = _paired(messages)
    written = [body for entry in entries for body in _written(entry, ids, model, turn)]
    called = dict.fromkeys(legal_name(call.name) for entry in entries for call in entry.message.tool_calls)
    return Passage(tuple(ordered(written, model)), tuple(called))


class Offer:
    """Tools as every provider takes them, and as `canonical` JSON (empty without tools): made once for all requests."""

    def __init__(self, tools: Sequence[Body]) -> None:
        self.tools = tuple(map(_offer, tools))
        self.canonical = canonical(self.tools) if self.tools else ""


def put_together(effect: RequestLlm, system: str, passage: Passage, offer: Offer) -> ModelRequest:
    """The request that `effect` asks for, of all its messages. `Pure.`"""
    return ModelRequest(
        model=effect.model,
        messages=(*write_system(system), *passage.bodies),
        tools=offer.tools or tuple(map(_gone, passage.called)),
        tool_choice=effect.tool_choice if offer.tools or not passage.called else "none",
    )


def write_system(system: str) -> tuple[Body, ...]:
    """The system message, unless there is none. `Pure.`"""
    return ({"role": "system", "content": system},) if system.strip() else ()


def legal_name(name: str) -> str:
    """The name under which providers take a tool: letters, digits, `_` and `-`, 64 at the most.

    A legal name stays as it is. Another ends in a fingerprint, so that different names stay different. `Pure.`
    """
    if _LEGAL_NAME.fullmatch(name):
        return name
    fingerprint = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:55]}_{fingerprint}"


@dataclass(frozen=True)
class _Entry:
    """A message and, call by call, the results of what it calls."""

    message: Message
    results: list[Message | None]


def _paired(messages: Sequence[Message]) -> list[_Entry]:
    """Each result with the latest call of its id that has none yet. A result that nobody asked for is left out."""
    entries: list[_Entry] = []
    open_calls: dict[str, deque[tuple[_Entry, int]]] = {}
    for message in messages:
        if message.role == "tool":
            if waiting := open_calls.get(message.tool_call_id or ""):
                entry, place = waiting.popleft()
                entry.results[place] = message
            continue
        entry = _Entry(message, [None] * len(message.tool_calls))
        entries.append(entry)
        for call in message.tool_calls:
            open_calls[call.call_id] = deque()
        for place, call in enumerate(message.tool_calls):
            open_calls[call.call_id].append((entry, place))
    return entries


def _written(entry: _Entry, ids: Ids, model: str, turn: int) -> Iterator[Body]:
    """The messages that one entry goes out as; none if it says nothing."""
    message = entry.message
    if message.role == "user":
        if message.text.strip() or message.images:
            yield {"role": "user", "content": _shown(message)}
        return
    text = message.text if message.text.strip() else None
    call_ids = [ids.take(call.call_id) for call in message.tool_calls]
    if text is None and not call_ids:
        return
    written: Body = {"role": "assistant", "content": text}
    if call_ids:
        written["tool_calls"] = [_call(*pair) for pair in zip(message.tool_calls, call_ids, strict=True)]
    if message.opaque and message.turn == turn and message.model == model:
        written["thinking_blocks"] = list(message.opaque)
        if message.thinking:
            written["reasoning_content"] = message.thinking
    yield written
    yield from (_result(*pair) for pair in zip(entry.results, call_ids, strict=True))
    if images := [part for place, call_id in enumerate(call_ids) for part in _images_of(entry, place, call_id)]:
        yield {"role": "user", "content": images}


def _shown(message: Message) -> str | list[Body]:
    """The content of a person's message: a text, or parts if there are images."""
    if not message.images:
        return message.text
    return [*parts_of(message.text), *map(_image, message.images)]


def _images_of(entry: _Entry, place: int, call_id: str) -> Iterator[Body]:
    """The images of the result in this place, behind a text that says whose they are; nothing if there are none."""
    result = entry.results[place]
    if result is not None and result.images:
        name = legal_name(entry.message.tool_calls[place].name)
        yield from parts_of(f"{RESULT_IMAGES}{name} (call {call_id}), not sent by the user:")
        yield from map(_image, result.images)


def _image(image: Image) -> Body:
    return {"type": "image_url", "image_url": {"url": image.url}}


def _call(call: ToolCall, call_id: str) -> Body:
    arguments = call.arguments if _is_json_object(call.arguments) else "{}"
    return {"id": call_id, "type": "function", "function": {"name": legal_name(call.name), "arguments": arguments}}


def _result(result: Message | None, call_id: str) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": _NO_RESULT if result is None else _told(result)}


def _told(result: Message) -> str:
    """What the model reads as a result: at least a word. An error says that it is one."""
    marked = result.error and not _tells_of_failure(result.text)
    text = f"Error: {result.text}" if marked else result.text
    count = len(result.images)
    below = f"({count} {'images' if count > 1 else 'image'}: see below.)" if count else ""
    return "\n\n".join(part for part in (text, below) if part.strip()) or _NOTHING


def _tells_of_failure(text: str) -> bool:
    """Whether the text itself says that something failed, as a refused act does: in JSON, whose `success` is false
    (case S7)."""
    return _is_json_object(text) and from_json(text).get("success") is False


def _is_json_object(text: str) -> bool:
    """Whether every JSON parser takes the text for an object, also those that know no NaN and no half characters."""
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _offer(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "name": legal_name(tool["function"]["name"])}}


def _gone(name: str) -> dict[str, Any]:
    description = "This tool is no longer available."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
