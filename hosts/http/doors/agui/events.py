"""The events of a run, made of the updates of its turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StateDeltaEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from .....engine.updates import StateChangeUpdate, ThoughtUpdate, TokenUpdate, ToolProgressUpdate, ToolUpdate, Update
from .....states.policy import Policy
from .....states.values.messages import ToolCall
from ..turns.said_texts import SaidTexts
from ..turns.text_parts import TextParts, TextPiece
from .shown_messages import ShownMessages

STATE_PATH = "/turnwise/state"
"""Where the state of the conversation stands in the state of the agent."""

TOOL_PROGRESS = "turnwise.tool_progress"
"""The name of the custom event that has what a running tool reports."""


class RunEvents:
    """Translates the updates of one turn, in order.

    Ids of messages begin with `prefix`, so that the events of a repeated run have the same ids. `known_call` is a call
    that an earlier run has shown. `has_state` says whether the agent's state is an object, which holds that of the
    conversation. `shown` are the messages that the client holds: one that the model gave up is removed from them.
    """

    def __init__(
        self, prefix: str, policy: Policy, shown: ShownMessages, known_call: str | None, *, has_state: bool
    ) -> None:
        self._prefix = prefix
        self._shown = shown
        self._texts = SaidTexts(policy, live=True)
        self._thoughts = TextParts()
        self._calls = {known_call}
        self._has_state = has_state
        self._begun: set[str] = set()
        self.waiting_since: int | None = None
        """The step at which the turn began to wait for a person, if it waits."""

    def read(self, update: Update) -> Iterator[BaseEvent]:
        """Yield the events of an update."""
        yield from map(self._shown.note, self._read(update))

    def _read(self, update: Update) -> Iterator[BaseEvent]:
        match update:
            case TokenUpdate(kind="thinking"):
                yield from self._thought(self._thoughts.token(update))
            case ThoughtUpdate():
                yield from self._thought(self._thoughts.full_text(update.text))
            case ToolUpdate():
                yield from self._tool(update)
            case ToolProgressUpdate():
                yield CustomEvent(name=TOOL_PROGRESS, value=update.data)
            case StateChangeUpdate():
                yield from self._state(update)
            case _:
                yield from self._said(self._texts.read(update))

    def close(self) -> Iterator[BaseEvent]:
        """End what is open, as the turn has stopped."""
        yield from self._thought(self._thoughts.close())
        yield from self._said(self._texts.close())

    def call(self, call: ToolCall) -> Iterator[BaseEvent]:
        """Show a call, unless it was shown."""
        yield from self._call(call.call_id, call.name, call.raw_arguments)

    # --- each kind

    def _said(self, pieces: Iterator[TextPiece]) -> Iterator[BaseEvent]:
        for piece in pieces:
            message_id = f"{self._prefix}-text-{piece.number}"
            if self._begins(message_id):
                yield TextMessageStartEvent(message_id=message_id, role="assistant")
            if piece.text:
                yield TextMessageContentEvent(message_id=message_id, delta=piece.text)
            if piece.ends:
                yield TextMessageEndEvent(message_id=message_id)
            if piece.abandoned:
                yield self._shown.without(message_id)

    def _thought(self, pieces: Iterator[TextPiece]) -> Iterator[BaseEvent]:
        for piece in pieces:
            message_id = f"{self._prefix}-thought-{piece.number}"
            if self._begins(message_id):
                yield ReasoningStartEvent(message_id=message_id)
                yield ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
            if piece.text:
                yield ReasoningMessageContentEvent(message_id=message_id, delta=piece.text)
            if piece.ends:
                yield ReasoningMessageEndEvent(message_id=message_id)
                yield ReasoningEndEvent(message_id=message_id)
            if piece.abandoned:
                yield self._shown.without(message_id)

    def _begins(self, message_id: str) -> bool:
        begins = message_id not in self._begun
        self._begun.add(message_id)
        return begins

    def _tool(self, update: ToolUpdate) -> Iterator[BaseEvent]:
        arguments = update.raw_arguments
        if arguments is None:
            arguments = json.dumps(update.arguments, ensure_ascii=False)
        yield from self._call(update.call_id, update.name, arguments)
        if update.status != "running":
            content = update.result if update.error is None else update.error
            yield ToolCallResultEvent(
                message_id=f"{update.call_id}-result", tool_call_id=update.call_id, content=content or "", role="tool"
            )

    def _call(self, call_id: str, name: str, arguments: str) -> Iterator[BaseEvent]:
        if call_id in self._calls:
            return
        self._calls.add(call_id)
        yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name)
        yield ToolCallArgsEvent(tool_call_id=call_id, delta=arguments)
        yield ToolCallEndEvent(tool_call_id=call_id)

    def _state(self, update: StateChangeUpdate) -> Iterator[BaseEvent]:
        self.waiting_since = update.position[0] if update.state.waits_for_person else None
        if self._has_state:
            change: Any = {"op": "replace", "path": STATE_PATH, "value": update.state.data}
            yield StateDeltaEvent(delta=[change])
