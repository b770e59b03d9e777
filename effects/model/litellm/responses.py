"""Reads the events of OpenAI's Responses API as chunks of its chat completions.

A response is a list of items: reasoning, messages, calls, what the provider's own tools did. They stream side by side,
each event under the place of its item. litellm's bridge to this API passes on texts and calls; the citations of a
message, the probabilities of its tokens, refusals, a second part of a summary and the tools of the provider it does
not. So the events are read here.

An item is complete when it is done, and then tells all of itself once more. What did not come in pieces is taken from
there, and what came in no item at all from the end of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..families import ITEMS
from .response_request import CALLS, stored_items

Chunk = Mapping[str, Any]

_BETWEEN = "\n\n"
"""What stands between two parts of the thinking."""


def is_of_response(event: Chunk) -> bool:
    """Whether this is an event of the Responses API, or a whole response. `Pure.`"""
    kind = event.get("type")
    return event.get("object") == "response" or (isinstance(kind, str) and kind.startswith("response."))


class ResponseEvents:
    """The events of one response."""

    def __init__(self) -> None:
        self._items: dict[int, Chunk] = {}
        """The items that are done, by their places."""
        self._told: set[tuple[str, int]] = set()
        """Which items came in pieces: the name of the field, and the place."""
        self._calls: dict[int, int] = {}
        """The numbers of the calls, by the places of their items."""
        self._thought: tuple[object, ...] | None = None
        self._text_so_far: list[str] = []
        self._readers: dict[str, Callable[[Chunk], Iterator[Chunk]]] = {
            "output_text.delta": lambda event: self._text(_place_in(event), event.get("delta"), event.get("logprobs")),
            "refusal.delta": self._refusal,
            "reasoning_summary_text.delta": self._thinking,
            "reasoning_text.delta": self._thinking,
            "output_item.added": lambda event: self._begin_call(_place_in(event), _mapping(event, "item")),
            "function_call_arguments.delta": lambda event: self._arguments(_place_in(event), event.get("delta")),
            "custom_tool_call_input.delta": lambda event: self._arguments(_place_in(event), event.get("delta")),
            "output_item.done": lambda event: self._item(_place_in(event), _mapping(event, "item")),
        }

    def chunks_of(self, event: Chunk) -> Iterator[Chunk]:
        """Yield what this event tells."""
        if event.get("object") == "response":
            event = {"type": f"response.{event.get('status') or 'completed'}", "response": event}
        kind = str(event.get("type")).removeprefix("response.")
        if (read := self._readers.get(kind)) is not None:
            yield from read(event)
        elif kind in ("completed", "incomplete", "failed", "cancelled"):
            yield from self._end(kind, _mapping(event, "response"))
        elif kind == "error":
            yield {"error": event.get("error") or event}

    # --- pieces

    def _text(self, place: int, text: Any, logprobs: Any) -> Iterator[Chunk]:
        if isinstance(text, str) and text:
            self._told.add(("text", place))
            self._text_so_far.append(text)
            yield _delta(logprobs=logprobs, content=text)

    def _refusal(self, event: Chunk) -> Iterator[Chunk]:
        if isinstance(text := event.get("delta"), str) and text:
            self._told.add(("text", _place_in(event)))
            self._text_so_far.append(text)
            yield _delta(refusal=text)

    def _thinking(self, event: Chunk) -> Iterator[Chunk]:
        text = event.get("delta")
        if not isinstance(text, str) or not text:
            return
        part = (event.get("item_id"), event.get("summary_index"), event.get("content_index"))
        between = _BETWEEN if self._thought not in (None, part) else ""
        self._thought = part
        self._told.add(("thinking", _place_in(event)))
        yield _delta(reasoning_content=f"{between}{text}")

    def _begin_call(self, place: int, item: Chunk) -> Iterator[Chunk]:
        if item.get("type") not in CALLS or place in self._calls:
            return
        self._calls[place] = len(self._calls)
        function = {"name": item.get("name"), "arguments": ""}
        call_id = item.get("call_id") or item.get("id")
        yield _delta(tool_calls=[{"index": self._calls[place], "id": call_id, "function": function}])

    def _arguments(self, place: int, text: Any) -> Iterator[Chunk]:
        if isinstance(text, str) and text and place in self._calls:
            self._told.add(("arguments", place))
            yield _delta(tool_calls=[{"index": self._calls[place], "function": {"arguments": text}}])

    # --- whole items

    def _item(self, place: int, item: Chunk) -> Iterator[Chunk]:
        """Tell of an item that is done what has not come in pieces."""
        if place in self._items:
            return
        self._items[place] = item
        match item.get("type"):
            case "message":
                yield from self._message(place, item)
            case "reasoning" if ("thinking", place) not in self._told:
                for number, part in enumerate([*_listed(item, "summary"), *_listed(item, "content")]):
                    told = {"delta": part.get("text"), "item_id": item.get("id"), "summary_index": number}
                    yield from self._thinking({**told, "output_index": place})
            case "function_call" | "custom_tool_call":
                yield from self._begin_call(place, item)
                if ("arguments", place) not in self._told:
                    yield from self._arguments(place, item.get("arguments") or item.get("input"))
            case _:
                pass

    def _message(self, place: int, item: Chunk) -> Iterator[Chunk]:
        parts, is_told = _listed(item, "content"), ("text", place) in self._told
        texts = [part.get("text") or part.get("refusal") for part in parts]
        length = sum(len(text) for text in texts if isinstance(text, str))
        so_far = sum(map(len, self._text_so_far))
        begin = so_far - length if is_told else so_far
        for part, text in zip(parts, texts, strict=True):
            if not is_told:
                yield from self._text(place, part.get("text"), part.get("logprobs"))
                yield from self._refusal({"output_index": place, "delta": part.get("refusal")})
            if annotations := [_moved(one, begin) for one in _listed(part, "annotations")]:
                yield _delta(annotations=annotations)
            begin += len(text) if isinstance(text, str) else 0

    def _end(self, kind: str, response: Chunk) -> Iterator[Chunk]:
        if kind in ("failed", "cancelled"):
            yield {"error": response.get("error") or {"message": f"the response was {kind}"}}
            return
        for place, item in enumerate(_listed(response, "output")):
            yield from self._item(place, item)
        items = [self._items[place] for place in sorted(self._items)]
        kept: dict[str, Any] = {ITEMS: stored_items(items, "".join(self._text_so_far))}
        yield _delta(**kept)
        reason = _mapping(response, "incomplete_details").get("reason")
        ending = "tool_calls" if self._calls else "stop"
        if kind == "incomplete":
            ending = "content_filter" if reason == "content_filter" else "length"
        yield {**_delta(finish_reason=ending), "usage": _usage_of(_mapping(response, "usage"))}


def _usage_of(usage: Chunk) -> Chunk:
    """The usage in the names of chat completions."""
    given, written = usage.get("input_tokens"), usage.get("output_tokens")
    if given is None and written is None:
        return usage
    return {
        "prompt_tokens": given or 0,
        "completion_tokens": written or 0,
        "total_tokens": usage.get("total_tokens") or 0,
        "prompt_tokens_details": usage.get("input_tokens_details") or {},
        "completion_tokens_details": usage.get("output_tokens_details") or {},
    }


def _moved(annotation: Chunk, by: int) -> Chunk:
    """An annotation with its places in the whole text."""
    places = {name: annotation[name] + by for name in ("start_index", "end_index") if type(annotation.get(name)) is int}
    return {**annotation, **places}


def _delta(finish_reason: str | None = None, logprobs: Any = None, **fields: Any) -> Chunk:
    told = {"logprobs": {"content": logprobs}} if logprobs else {}
    fields = {name: value for name, value in fields.items() if value}
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason, **told}]}


def _place_in(event: Chunk) -> int:
    place = event.get("output_index")
    return place if isinstance(place, int) else 0


def _mapping(value: Chunk, name: str) -> Chunk:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _listed(value: Chunk, name: str) -> list[Chunk]:
    found = value.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
