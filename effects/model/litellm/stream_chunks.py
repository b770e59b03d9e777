"""Normalizes the chunks of a provider's stream before litellm reads them.

Some providers extend OpenAI's protocol: the text of a chunk may be a list of parts, its thinking may stand in a field
of another name, and the arguments of a call may be an object instead of JSON text. litellm silently drops what it does
not expect, and the answer would be empty. So each chunk is read here first. Known variants are rewritten in the usual
form. A chunk that cannot be read is remembered, so that the request fails instead of returning an empty answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..answer_content import THOUGHTS, UnreadableContent, read_content, read_thinking


class MalformedChunk(Exception):
    """A chunk does not follow the protocol."""


class NormalizedChunks:
    """An async iterator over the chunks of a provider's stream, in the usual form. It takes the place of that stream.

    `is_readable` says whether the source is a stream of chunks at all. `is_malformed` is set when a chunk could not be
    read; litellm gets an empty chunk in its place.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.is_readable = isinstance(source, AsyncIterator)
        self.is_malformed = False
        self._chunks: AsyncIterator[Any] | None = None

    def __aiter__(self) -> NormalizedChunks:
        if self._chunks is None:
            self._chunks = aiter(self._source)
        return self

    async def __anext__(self) -> Any:
        assert self._chunks is not None, "aiter() is called before anext()"
        chunk = await anext(self._chunks)
        for choice in getattr(chunk, "choices", None) or ():
            try:
                _normalize(getattr(choice, "delta", None))
            except MalformedChunk:
                self.is_malformed = True
                choice.delta = None
        return chunk

    def __getattr__(self, name: str) -> Any:
        # Streams are closed in different ways; litellm looks for the methods of the source.
        return getattr(self._source, name)


def _normalize(delta: Any) -> None:
    """Rewrite content as text, thinking as `reasoning_content` and arguments as JSON, in place. Raises
    `MalformedChunk`."""
    thinking = _take_thinking(getattr(delta, "model_extra", None) or {})
    content = getattr(delta, "content", None)
    if content is not None and not isinstance(content, str):
        try:
            text, thought = read_content(content)
        except (UnreadableContent, RecursionError):
            raise MalformedChunk from None
        delta.content, thinking = text, f"{thinking}{thought}"
    if thinking:
        delta.reasoning_content = thinking
    for call in _list_of(getattr(delta, "tool_calls", None)):
        _normalize_call(call)


def _take_thinking(fields: dict[str, Any]) -> str:
    """Take the thinking out of the fields that are no part of OpenAI's protocol, with whatever else has such a name:
    litellm expects a text there."""
    thinking = read_thinking(fields)
    for name in THOUGHTS:
        fields.pop(name, None)
    return thinking


def _normalize_call(call: Any) -> None:
    function = getattr(call, "function", None)
    if function is None or not hasattr(function, "arguments"):
        raise MalformedChunk
    if isinstance(function.arguments, Mapping):
        function.arguments = json.dumps(function.arguments, ensure_ascii=False)
    if not isinstance(function.arguments, str | None) or not isinstance(getattr(function, "name", None), str | None):
        raise MalformedChunk


def _list_of(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedChunk
    return value
