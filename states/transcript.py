"""What was said, read from the log.

The transcript is never stored: it follows from the log, entry by entry. Results of tools stand directly behind the
message that asked for them, in the order of its calls, whatever order they came in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from .effects import PersistMessage, PersistToolResults, SettledCall
from .events import (
    EffectFailed,
    Event,
    LlmResponse,
    MessageWithdrawn,
    ToolApproval,
    ToolComplete,
    UserMessage,
    UserQuestionResponse,
)
from .images import Image
from .log import LogEntry
from .messages import Heard, Made, Message, Said, ToolCall
from .questions import answers_as_json
from .step import Step


def text_of(event: Event, index: int) -> str:
    """The `index`-th text of an event; see `Heard`. `Pure.`"""
    match event:
        case UserMessage(text=text):
            return text
        case LlmResponse(content=content) if index == 0:
            return content
        case LlmResponse(tool_calls=calls):
            return calls[index - 1].fault or ""
        case ToolComplete(result=result):
            return result.text
        case UserQuestionResponse(answers=answers, annotations=annotations):
            return answers_as_json(answers, annotations)
        case EffectFailed(sentence=sentence):
            return sentence
        case _:
            raise LookupError(f"an event of type {event.type} brings no text")


@dataclass
class Transcript:
    """The messages of a log so far. Give it every entry, in order."""

    messages: list[Message] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    """The turn that took each message of a user, by the message's id."""
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _waiting: dict[int, UserMessage] = field(default_factory=dict)
    """Messages that have not entered yet, by the step that brought them."""
    _round: int = 0
    """Where the results of the newest round begin."""

    def call(self, call_id: str) -> ToolCall:
        """A call of the newest round, with its arguments as a person may have changed them.

        Raises KeyError if there is none. `Pure.`
        """
        return self._calls[call_id]

    def add(self, entry: LogEntry) -> tuple[Message, ...]:
        """Take the next entry; returns the messages that it brought, each of which now has its place."""
        brought: list[Message] = []
        if isinstance(entry.event, UserMessage):
            self._waiting[entry.seq] = entry.event
        elif isinstance(entry.event, MessageWithdrawn):
            withdrawn = entry.event.message_id
            self._waiting = {seq: said for seq, said in self._waiting.items() if said.event_id != withdrawn}
        elif isinstance(entry.event, ToolApproval) and entry.event.arguments is not None:
            edited = json.dumps(entry.event.arguments, ensure_ascii=False)
            call = self._calls[entry.event.call_id]
            self._calls[call.call_id] = call.model_copy(update={"arguments": edited})
        for effect in entry.effects:
            if isinstance(effect, PersistMessage):
                brought.append(self._add_message(entry, effect.said))
            elif isinstance(effect, PersistToolResults):
                brought += [self._add_result(entry, result) for result in effect.results]
        return tuple(brought)

    def _add_message(self, entry: LogEntry, said: Said) -> Message:
        if isinstance(said, Heard) and said.seq in self._waiting:
            waiting = self._waiting.pop(said.seq)
            self.taken[waiting.event_id] = entry.turn
            message = Message(
                role="user",
                text=waiting.text,
                images=waiting.images,
                message_id=waiting.event_id,
                turn=entry.turn,
            )
        else:
            message = _assistant(entry, said)
        self.messages.append(message)
        if message.tool_calls:
            self._calls = {call.call_id: call for call in message.tool_calls}
            self._round = len(self.messages)
        return message

    def _add_result(self, entry: LogEntry, result: SettledCall) -> Message:
        order = list(self._calls)
        rank = order.index(result.call_id)
        place = self._round
        while place < len(self.messages) and order.index(self.messages[place].tool_call_id or "") < rank:
            place += 1
        message = Message(
            role="tool",
            text=words(entry.event, result.said),
            images=_images(entry.event, result.said),
            tool_call_id=result.call_id,
            error=result.error,
            turn=_own_turn(entry),
        )
        self.messages.insert(place, message)
        return message


def _own_turn(entry: LogEntry) -> int:
    """The turn that the event of this step belongs to: where one ends, the next may have begun in the same step."""
    return entry.turn if entry.ended is None else entry.ended.turn


def _assistant(entry: LogEntry, said: Said) -> Message:
    event = entry.event
    if not isinstance(event, LlmResponse) or isinstance(said, Made):
        return Message(role="assistant", text=words(event, said), turn=_own_turn(entry))
    return Message(
        role="assistant",
        text=event.content,
        thinking=event.thinking,
        opaque=event.opaque,
        tool_calls=event.tool_calls,
        turn=_own_turn(entry),
        model=event.model,
    )


def _images(event: Event, said: Said) -> tuple[Image, ...]:
    """The images of a tool's result, if it is this that is said."""
    return event.result.images if isinstance(event, ToolComplete) and isinstance(said, Heard) else ()


def words(event: Event, said: Said) -> str:
    """The text that `said` stands for in the step of this event. `Pure.`"""
    match said:
        case Made(text=text):
            return text
        case Heard(index=index):
            return text_of(event, index)


def transcript(log: Iterable[LogEntry | tuple[Event, Step]]) -> tuple[Message, ...]:
    """What was said, from a log of entries or of (event, step) pairs, oldest first. `Pure.`"""
    said = Transcript()
    for entry in log:
        said.add(entry if isinstance(entry, LogEntry) else LogEntry.of(*entry))
    return tuple(said.messages)
