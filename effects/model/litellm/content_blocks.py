"""Keeps the blocks of a message of Anthropic's that litellm's translator cannot pass on.

A message is a list of blocks: text with the passages that it cites, thinking, calls, and what the provider's own tools
were asked and have found. The provider wants the latter back in the order in which they came, between the texts and the
sealed thinking of the same message. The translator would make calls of them that nobody can run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Chunk = Mapping[str, Any]

_OWN = ("text", "thinking", "redacted_thinking", "tool_use")
"""The types of blocks that the translator passes on. All others are of the provider's own tools."""

_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class ContentBlocks:
    """The blocks of one message, from its events."""

    def __init__(self) -> None:
        self._blocks: dict[object, dict[str, Any]] = {}
        self._inputs: dict[object, str] = {}

    def note(self, event: Chunk) -> bool:
        """Note this event, and return whether it is for nobody else: it tells what the provider's tools did, or a
        passage that is cited."""
        index, kind = event.get("index"), event.get("type")
        if kind == "content_block_start":
            block = event.get("content_block")
            self._blocks[index] = dict(block) if isinstance(block, Mapping) else {}
        elif kind == "content_block_delta":
            delta = event.get("delta")
            if index in self._blocks and isinstance(delta, Mapping):
                self._grow(index, delta)
                if delta.get("type") == "citations_delta":
                    return True
        elif kind != "content_block_stop":
            return False
        return index in self._blocks and self._blocks[index].get("type") not in _OWN

    def _grow(self, index: object, delta: Chunk) -> None:
        block, kind = self._blocks[index], delta.get("type")
        if name := _GROWING.get(str(kind)):
            block[name] = str(block.get(name) or "") + str(delta.get(name) or "")
        elif kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + str(delta.get("partial_json") or "")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks in order, without the calls; empty if the provider's tools did nothing."""
        blocks = [
            self._complete(index, block) for index, block in self._blocks.items() if block.get("type") != "tool_use"
        ]
        return blocks if any(block.get("type") not in _OWN for block in blocks) else []

    def _complete(self, index: object, block: dict[str, Any]) -> dict[str, Any]:
        if not self._inputs.get(index):
            return block
        try:
            return {**block, "input": json.loads(self._inputs[index])}
        except ValueError:
            return block

    @property
    def citations(self) -> Iterator[dict[str, Any]]:
        """What is cited, each with the part of the whole text that it is for."""
        length = 0
        for block in self._blocks.values():
            text = block.get("text") if block.get("type") == "text" else None
            if isinstance(text, str):
                for given in block.get("citations") or ():
                    yield {"given": given, "start": length, "end": length + len(text)}
                length += len(text)
