"""The messages that a client holds, as the events of a run have built them.

A client cannot be told to remove one message. It can be told which messages there are, all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageStartEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
)


@dataclass
class _Shown:
    """A message that arrives in pieces."""

    start: BaseEvent
    pieces: list[str] = field(default_factory=list)

    @property
    def message(self) -> Message:
        text = "".join(self.pieces)
        match self.start:
            case TextMessageStartEvent(message_id=message_id):
                return AssistantMessage(id=message_id, content=text)
            case ReasoningMessageStartEvent(message_id=message_id):
                return ReasoningMessage(id=message_id, content=text)
            case ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name):
                call = ToolCall(id=call_id, function=FunctionCall(name=name, arguments=text))
                return AssistantMessage(id=call_id, tool_calls=[call])
            case ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content=content):
                return ToolMessage(id=message_id, tool_call_id=call_id, content=content)
            case _:
                raise AssertionError("no other event begins a message")


class ShownMessages:
    """The messages `before` the run, and those that its events have shown since."""

    def __init__(self, before: Sequence[Message]) -> None:
        self._before = before
        self._shown: dict[str, _Shown] = {}

    def note(self, event: BaseEvent) -> BaseEvent:
        """Note an event that is sent, and return it."""
        match event:
            case TextMessageStartEvent(message_id=message_id) | ReasoningMessageStartEvent(message_id=message_id):
                self._shown[message_id] = _Shown(event)
            case ToolCallStartEvent(tool_call_id=message_id) | ToolCallResultEvent(message_id=message_id):
                self._shown[message_id] = _Shown(event)
            case (
                TextMessageContentEvent(message_id=message_id, delta=text)
                | ReasoningMessageContentEvent(message_id=message_id, delta=text)
                | ToolCallArgsEvent(tool_call_id=message_id, delta=text)
            ):
                self._shown[message_id].pieces.append(text)
            case _:
                pass
        return event

    def without(self, message_id: str) -> MessagesSnapshotEvent:
        """Remove a message, and return the event that tells which there are."""
        del self._shown[message_id]
        return MessagesSnapshotEvent(messages=[*self._before, *(shown.message for shown in self._shown.values())])
