"""Messages that a conversation is given to begin with, in the chat format of OpenAI.

Other programs keep their histories in this format. A message is stored as it was given, so that it can be given back
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from .value import Tagged, Text, Value

HistoryRole = Literal["system", "developer", "user", "assistant", "tool"]

_OWN_CALL_ID = re.compile(r"call_([0-9]{1,18})_[0-9]+")
"""A call id as this library makes them: the number of the effect that made the call, and the place of the call."""


class HistoryText(Tagged):
    """A text within the content of a message."""

    type: Literal["text"] = "text"
    text: Text


class HistoryImage(Tagged):
    """An image within the content of a message: a URL, or a data URL that holds the image itself."""

    type: Literal["image_url"] = "image_url"
    url: Text
    detail: Text | None = None


HistoryPart = Annotated[HistoryText | HistoryImage, Field(discriminator="type")]


class HistoryCall(Value):
    """A tool call of the assistant. `arguments` is the JSON text as the model wrote it."""

    call_id: Text
    name: Text
    arguments: Text = "{}"


class HistoryMessage(Value):
    """A message as it was given. `tool_call_id` is that of the call to which a tool's message is the result."""

    role: HistoryRole
    content: Text | tuple[HistoryPart, ...] | None = None
    tool_calls: tuple[HistoryCall, ...] = ()
    tool_call_id: Text | None = None
    name: Text | None = None
    refusal: Text | None = None

    @classmethod
    def from_openai(cls, message: Mapping[str, Any]) -> HistoryMessage:
        """Read a message in OpenAI's format. Raises ValueError for one that does not have it. `Pure.`"""
        content, calls = message.get("content"), message.get("tool_calls") or ()
        parts = content if content is None or isinstance(content, str) else [_read_part(part) for part in content]
        return cls.model_validate({**message, "content": parts, "tool_calls": [_read_call(call) for call in calls]})

    def to_openai(self) -> dict[str, Any]:
        """Return the message in OpenAI's format. `Pure.`"""
        content = [_written_part(part) for part in self.content] if isinstance(self.content, tuple) else self.content
        calls = [_written_call(call) for call in self.tool_calls]
        optional = {"tool_call_id": self.tool_call_id, "name": self.name, "refusal": self.refusal}
        written: dict[str, Any] = {"role": self.role, "content": content}
        written |= {"tool_calls": calls} if calls else {}
        return written | {name: value for name, value in optional.items() if value is not None}


def effects_taken(messages: Iterable[HistoryMessage]) -> int:
    """Return the highest number of an effect in the call ids of these messages, or 0. New effects are numbered beyond
    it, so that no new call has the id of a given one. `Pure.`"""
    ids = [call.call_id for message in messages for call in message.tool_calls]
    own = [_OWN_CALL_ID.fullmatch(call_id) for call_id in ids]
    return max((int(match[1]) for match in own if match is not None), default=0)


def _read_part(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") == "image_url" and isinstance(part.get("image_url"), Mapping):
        return {"type": "image_url", **part["image_url"]}
    return part


def _read_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    return {"call_id": call.get("id"), **function} if isinstance(function, Mapping) else call


def _written_part(part: HistoryText | HistoryImage) -> dict[str, Any]:
    if isinstance(part, HistoryText):
        return {"type": "text", "text": part.text}
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "image_url", "image_url": {"url": part.url, **detail}}


def _written_call(call: HistoryCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
