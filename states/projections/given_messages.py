"""Reads the messages of a given history as messages of the transcript.

It reads whatever a log may hold: what a message does not say in OpenAI's chat format is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile, groupby
from typing import Any

from ..errors import InvalidInput
from ..values.history import HistoryMessage, HistoryRole
from ..values.images import Image
from ..values.messages import Message, MessageRole, ToolCall

_ROLES: dict[HistoryRole, MessageRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def given_messages(messages: Iterable[HistoryMessage], seq: int) -> list[Message]:
    """Return the messages of a history that was given in the step `seq`, with results in call order. System messages at
    its beginning are left out, because their text is the system prompt of the conversation. `Pure.`"""
    read = [_MessageReader(one).read() for one in dropwhile(lambda one: one.is_system, messages)]
    ranks: dict[str, int] = {}
    ordered: list[Message] = []
    for is_result, group in groupby(read, key=lambda message: message.role == "tool"):
        several = list(group)
        ordered += sorted(several, key=lambda one: ranks.get(one.tool_call_id or "", 0)) if is_result else several
        ranks = {call.call_id: rank for rank, call in enumerate(several[-1].tool_calls)}
    return [message.replace(seq=seq) for message in ordered]


class _MessageReader:
    """Reads one message: its texts, its images, and the order in which they stand."""

    def __init__(self, message: HistoryMessage) -> None:
        self._message = message
        self._texts: list[str] = []
        self._images: list[Image] = []
        self._parts: list[str | int] = []

    def read(self) -> Message:
        """Return the message."""
        given = self._message.given
        for part in _parts_of(given.get("content")):
            self._add(part)
        text, call_id = "\n\n".join(self._texts), given.get("tool_call_id")
        role, refusal = self._message.role, given.get("refusal")
        if not text.strip() and isinstance(refusal, str):
            text = refusal
        return Message(
            role=_ROLES[role],
            text=text,
            images=tuple(self._images),
            parts=tuple(self._parts) if self._are_mixed() else (),
            tool_calls=tuple(map(_call, self._message.calls)),
            tool_call_id=call_id if isinstance(call_id, str) and role == "tool" else None,
        )

    def _add(self, part: Any) -> None:
        match part:
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                if text.strip():
                    self._texts.append(text)
                    self._parts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                try:
                    self._images.append(Image.of(url))
                except InvalidInput:
                    return
                self._parts.append(len(self._images) - 1)
            case _:
                pass

    def _are_mixed(self) -> bool:
        """Whether a text stands behind an image."""
        kinds = [isinstance(part, int) for part in self._parts]
        return kinds != sorted(kinds)


def _parts_of(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    made = {"name": function["name"], "raw_arguments": function["arguments"]}
    return ToolCall(call_id=call["id"], provider_id=call["id"], **made)
