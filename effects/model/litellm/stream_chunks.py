"""What a provider streams, made alike before litellm reads it.

Providers that speak OpenAI's protocol stretch it: the text of a piece may be a list of parts, the arguments of a call
an object instead of its JSON. litellm drops, without a word, what it does not expect, and an answer would come to
nothing. So each piece is read here first: what can be understood is written in the one usual way (case J23), and what
cannot be is remembered, so that the answer fails instead of passing for an empty one (case P30).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

_TEXTS = ("text", "output_text", "refusal")
"""The types of parts that are said, and the names under which their words stand."""

_THOUGHTS = ("thinking", "reasoning", "reasoning_content")


class Unreadable(Exception):
    """A piece does not hold what the protocol says."""


class Chunks:
    """The pieces of a provider's stream, one after the other, in place of that stream.

    `come` says whether there is a stream that can be read piece by piece; `unreadable` that a piece could not be
    understood, which litellm was then shown as an empty one.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.come = isinstance(source, AsyncIterator)
        self.unreadable = False
        self._pieces: AsyncIterator[Any] | None = None

    def __aiter__(self) -> Chunks:
        if self._pieces is None:
            self._pieces = aiter(self._source)
        return self

    async def __anext__(self) -> Any:
        assert self._pieces is not None, "whoever reads a stream asks it for its iterator first"
        chunk = await anext(self._pieces)
        for choice in getattr(chunk, "choices", None) or ():
            try:
                _make_usual(getattr(choice, "delta", None))
            except Unreadable:
                self.unreadable = True
                choice.delta = None
        return chunk

    def __getattr__(self, name: str) -> Any:
        # How a stream is closed differs; litellm looks for what there is.
        return getattr(self._source, name)


def _make_usual(delta: Any) -> None:
    """Write content as a text and arguments as JSON, where they are something else. Raises `Unreadable`."""
    content = getattr(delta, "content", None)
    if content is not None and not isinstance(content, str):
        said, thought = read_parts(content)
        delta.content = said
        if thought:
            delta.reasoning_content = thought
    for call in _list_of(getattr(delta, "tool_calls", None)):
        _make_usual_call(call)


def _make_usual_call(call: Any) -> None:
    function = getattr(call, "function", None)
    if function is None or not hasattr(function, "arguments"):
        raise Unreadable
    if isinstance(function.arguments, Mapping):
        function.arguments = json.dumps(function.arguments, ensure_ascii=False)
    if not isinstance(function.arguments, str | None) or not isinstance(getattr(function, "name", None), str | None):
        raise Unreadable


def read_parts(content: object) -> tuple[str, str]:
    """What is said and what is thought in content that is no plain text: a part, or a list of parts and texts.

    Parts of other types (references, say) hold no words and are left out. Raises `Unreadable`. `Pure.`
    """
    said, thought = "", ""
    for part in [content] if isinstance(content, Mapping) else _list_of(content):
        if isinstance(part, str):
            said += part
            continue
        if not isinstance(part, Mapping):
            raise Unreadable
        kind = part.get("type", "text")
        if kind in _TEXTS:
            said += _words(part.get("text", part.get(kind)))
        elif kind in _THOUGHTS:
            thought += _words(part.get(kind, part.get("text")))
    return said, thought


def _words(value: object) -> str:
    """The words of a part, which may themselves stand in parts."""
    if isinstance(value, str):
        return value
    return "".join(read_parts(value))


def _list_of(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable
    return value
