"""Writes the events of Anthropic's and Gemini's protocols in the form that litellm's translators read.

The translators follow the documentation. Servers that speak these protocols, gateways above all, write more than that:
a whole message where a stream was asked for, a call whose arguments stand in its first event and never come in pieces,
two blocks at a time, a call without arguments. A translator drops what it does not expect there, and a call would run
without its arguments or with those of another one. So each event is made regular before it is translated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .stream_assembler import BrokenAnswer, MalformedChunk

Event = Mapping[str, Any]

_CALLS = ("tool_use", "server_tool_use")


class RegularEvents:
    """The events of one stream, made regular. A call is held until all of it has come."""

    def __init__(self) -> None:
        self._held: dict[object, list[Event]] = {}

    def made_of(self, event: Event) -> Iterable[Event]:
        """What this event becomes: itself in most cases. Raises `BrokenAnswer` for an error in place of an event."""
        if error := event.get("error"):
            raise BrokenAnswer("server_error", "the stream holds an error", error)
        match event.get("type"):
            case "message":
                return list(_streamed(event))
            case "content_block_start":
                return [*self._ended(event.get("index")), *self._begun(event)]
            case "content_block_delta" if event.get("index") in self._held:
                self._held[event.get("index")].append(event)
                return ()
            case "content_block_stop" if event.get("index") in self._held:
                return [*self._ended(event.get("index")), event]
            case "message_delta" | "message_stop":
                return [*(one for index in list(self._held) for one in self._ended(index)), event]
            case _:
                return (_with_arguments(event) if "candidates" in event else event,)

    def _begun(self, event: Event) -> Iterable[Event]:
        block = event.get("content_block")
        if isinstance(block, Mapping) and block.get("type") in _CALLS:
            self._held[event.get("index")] = [event]
            return ()
        is_sealed = isinstance(block, Mapping) and block.get("type") == "thinking"
        return _whole_thinking(event) if is_sealed else (event,)

    def _ended(self, index: object) -> Iterable[Event]:
        """The call that was held under this index."""
        held = self._held.pop(index, None)
        return () if held is None else _whole_call(held)


def _whole_call(events: list[Event]) -> list[Event]:
    """The events of a call, in which its arguments come in pieces. Raises `MalformedChunk` if its first event and its
    pieces tell different arguments."""
    start, *pieces = events
    given = start["content_block"].get("input")
    written = "".join(str(_part(piece, "delta").get("partial_json") or "") for piece in pieces)
    if not given or (isinstance(given, Mapping) and not any(given.values()) and written):
        return events
    if not written.strip() or written.strip() == "{}":
        return [start, _delta(start.get("index"), "input_json_delta", partial_json=_text(given))]
    if _value(written) != (_value(given) if isinstance(given, str) else given):
        raise MalformedChunk
    return events


def _whole_thinking(start: Event) -> Iterator[Event]:
    """The first event of a block of thinking, and what it tells already as the pieces that tell it."""
    block, index = start["content_block"], start.get("index")
    yield {**start, "content_block": {**block, "thinking": "", "signature": ""}}
    if text := block.get("thinking"):
        yield _delta(index, "thinking_delta", thinking=text)
    if signature := block.get("signature"):
        yield _delta(index, "signature_delta", signature=signature)


def _streamed(message: Event) -> Iterator[Event]:
    """The events in which this message of Anthropic's would have streamed."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    for index, block in enumerate(blocks):
        if not isinstance(block, Mapping):
            raise MalformedChunk
        start = {"type": "content_block_start", "index": index, "content_block": block}
        if block.get("type") in _CALLS:
            yield from _whole_call([start])
        elif block.get("type") == "thinking":
            yield from _whole_thinking(start)
        else:
            yield start
        yield {"type": "content_block_stop", "index": index}
    ending = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": ending, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


def _with_arguments(event: Event) -> Event:
    """Gemini's event, in which each call has arguments."""
    candidates = event["candidates"]
    bare = [part for part in _parts_in(candidates) if part.get("functionCall") and _has_none(part["functionCall"])]
    if not bare:
        return event
    copy: Event = json.loads(json.dumps(event))
    for part in _parts_in(copy["candidates"]):
        if part.get("functionCall") and _has_none(part["functionCall"]):
            part["functionCall"]["args"] = {}
    return copy


def _has_none(call: Any) -> bool:
    return isinstance(call, Mapping) and call.get("args") is None


def _parts_in(candidates: Any) -> Iterator[Any]:
    for candidate in candidates if isinstance(candidates, list) else ():
        parts = _part(candidate, "content").get("parts") if isinstance(candidate, Mapping) else None
        yield from (part for part in parts or () if isinstance(part, Mapping))


def _part(event: Event, name: str) -> Event:
    part = event.get(name)
    return part if isinstance(part, Mapping) else {}


def _delta(index: object, kind: str, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
