"""Updates: what watchers of a conversation see, in one vocabulary for programs, streams and pages.

Updates follow from the log, so one that was missed can be read again. Each has the id "seq.n": the step, and its
position in the step. Live updates come between them; they have no id and are never stored: `token`, `tool_progress`,
`delivered` and `delivery_failed`. The last two report what became of an attempt to deliver; a delivery that has not
arrived stays in the outbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...states.context import Context
from ...states.effects import DeliverToUser, ExecuteTool, PersistToolResults
from ...states.errors import InvalidInput
from ...states.events import Opened
from ...states.log import LogEntry
from ...states.machine import begin, transition
from ...states.policy.policy import Policy
from ...states.projections.transcript import Transcript
from ...states.replies.reply_text import text_of_reply
from ...states.states import (
    AwaitingApproval,
    AwaitingUserResponse,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    LlmRequesting,
    RetryWaiting,
    State,
)
from ...states.values.messages import Message
from .turn import Turn
from .turn_builder import ended_turn

UpdateType = Literal[
    "snapshot",
    "state_change",
    "message",
    "thought",
    "tool",
    "delivery",
    "turn_ended",
    "token",
    "tool_progress",
    "delivered",
    "delivery_failed",
]


_ID = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)


@dataclass(frozen=True)
class Update:
    """Something to show.

    | type | data |
    |---|---|
    | snapshot | `state` as in state_change, `transcript`: messages as dicts, with their `deliveries` if there are any |
    | state_change | `type`: the state in snake_case, `data`: the `turn`, and what it tells (the questions, say) |
    | message | `role`, `text`, `turn`, and of a user the `message_id`, and `images` if there are any, as {`url`} |
    | thought | `text`, `turn`: thinking, and text that the rules keep from the user |
    | tool | `call_id`, `name`, `speaks`, `status`: completed, failed, cancelled, denied, or running with `arguments` |
    | delivery | `text`, `turn`, `ordinal`: said to the user; `relayed` if another agent wrote it |
    | turn_ended | `turn`, `status`, `is_complete`, `final_content`, `user_response`, `deliveries`, `silent`, … |
    | token | `text`, `kind`: text or thinking |
    | tool_progress | `call_id`, `text` |
    | delivered | `turn`, `ordinal`, `key`, `channel`: this channel has taken the delivery |
    | delivery_failed | the same and `sentence`: it has not, and is tried again |
    """

    type: UpdateType
    data: dict[str, Any]
    id: str | None = None

    @property
    def position(self) -> tuple[int, int] | None:
        """The id as numbers, in whose order updates come; None for live updates."""
        return None if self.id is None else parse_id(self.id)


def parse_id(text: object) -> tuple[int, int]:
    """Return the numbers of an id. Raises `InvalidInput`. `Pure.`"""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput("The id of an update reads like 12.3, the step and the position in it.")
    return int(match[1]), int(match[2])


def snapshot(state: State, transcript: Transcript, policy: Policy) -> Update:
    """Return the conversation as it is now, for a new watcher. Its id follows those of all updates so far. `Pure.`"""
    shown = (_without_marked_lines(message, policy) for message in transcript.messages)
    messages = [message.model_dump(mode="json", exclude_defaults=True) for message in shown]
    return Update("snapshot", {"state": describe(state, transcript), "transcript": messages}, f"{state.book.seq + 1}.0")


def _without_marked_lines(message: Message, policy: Policy) -> Message:
    """Return the message as people see it: what a model wrote, and what was delivered, without marked lines."""
    if not policy.marker:
        return message
    deliveries = tuple(text_of_reply(text, policy) for text in message.deliveries)
    text = text_of_reply(message.text, policy) if message.role == "assistant" else message.text
    return message.replace(text=text, deliveries=deliveries)


def updates_of(
    entry: LogEntry, before: State, after: State, transcript: Transcript, context: Context
) -> tuple[Update, ...]:
    """Return the updates of a step, in order: what was said and done, the new state, and whether a turn has ended.

    Adds the entry to `transcript`, which must hold all entries before it; `context` is that before the step.
    """
    policy = context.policy
    was = describe(before, transcript)
    messages = transcript.add(entry)
    now = describe(after, transcript)
    change: list[_Shown] = [("state_change", now)] if now != was else []
    if entry.ended is None:
        shown = [*_said(messages, policy), *_done(entry, messages, transcript, policy), *change]
    else:
        turn = entry.ended.turn
        end: _Shown = ("turn_ended", describe_turn(ended_turn(entry.ended, transcript, policy)))
        shown = [*_said((m for m in messages if m.turn <= turn), policy), *_done(entry, messages, transcript, policy)]
        begun = list(_said((m for m in messages if m.turn > turn), policy))
        # If the next turn begins in the same step, the end of this one is shown before anything of the next.
        shown += [end, *begun, *change] if after.book.turn > turn else [*change, end]
    return tuple(Update(kind, data, f"{entry.seq}.{n}") for n, (kind, data) in enumerate(shown, start=1))


_Shown = tuple[UpdateType, dict[str, Any]]


def _said(messages: Iterable[Message], policy: Policy) -> Iterator[_Shown]:
    for message in messages:
        if message.thinking:
            yield "thought", {"text": message.thinking, "turn": message.turn}
        if message.role == "assistant" and policy.text == "thought" and message.text.strip():
            yield "thought", {"text": message.text, "turn": message.turn}
        elif message.role != "tool" and (message.text.strip() or message.images):
            yield "message", _message_data(message, policy)


def _message_data(message: Message, policy: Policy) -> dict[str, Any]:
    text = _without_marked_lines(message, policy).text
    data: dict[str, Any] = {"role": message.role, "text": text, "turn": message.turn}
    data |= {"message_id": message.message_id} if message.message_id else {}
    data |= {"origin": message.origin} if message.origin else {}
    return data | ({"images": [image.model_dump() for image in message.images]} if message.images else {})


def _done(entry: LogEntry, messages: Iterable[Message], transcript: Transcript, policy: Policy) -> Iterator[_Shown]:
    results = {message.tool_call_id: message for message in messages}
    for effect in entry.effects:
        if isinstance(effect, PersistToolResults):
            for result in effect.results:
                yield "tool", {**_call(transcript, result.call_id), "status": _status_of(results[result.call_id])}
        elif isinstance(effect, ExecuteTool):
            arguments = transcript.call(effect.call.call_id).raw_arguments
            yield "tool", {**_call(transcript, effect.call.call_id), "status": "running", "arguments": arguments}
        elif isinstance(effect, DeliverToUser):
            text = text_of_reply(transcript.words(effect.said), policy)
            data = {"text": text, "turn": effect.turn, "ordinal": effect.ordinal}
            yield "delivery", {**data, "relayed": True} if effect.relayed else data


def _status_of(result: Message) -> str:
    return result.stopped or ("failed" if result.error else "completed")


def _call(transcript: Transcript, call_id: str) -> dict[str, Any]:
    call = transcript.call(call_id)
    return {"call_id": call_id, "name": call.name, "speaks": "speech" in call.acts}


def updates_of_log(entries: Iterable[LogEntry]) -> Iterator[Update]:
    """Yield all updates of a log. Raises `Refused` if the machine does not take an event that it took then. `Pure.`"""
    state: State = Idle()
    context = Context()
    transcript = Transcript()
    for entry in entries:
        event = entry.event
        step = begin(event) if isinstance(event, Opened) else transition(state, event, context)
        yield from updates_of(entry, state, step.state, transcript, context)
        state, context = step.state, context.after(event)


def describe(state: State, transcript: Transcript) -> dict[str, Any]:
    """Return a state as watchers see it. `Pure.`"""
    return {"type": state.type, "data": {"turn": state.book.turn, **_details(state, transcript)}}


def _details(state: State, transcript: Transcript) -> dict[str, Any]:
    match state:
        case LlmRequesting(attempt=attempt) | Compacting(attempt=attempt):
            return {"attempt": attempt}
        case RetryWaiting(attempt=attempt, timer=timer):
            return {"attempt": attempt, "due": timer.due.isoformat()}
        case AwaitingUserResponse(questions=questions, call=call):
            asked = [question.model_dump(mode="json", exclude_defaults=True) for question in questions]
            return {"questions": asked, "call_id": call.call_id}
        case AwaitingApproval(call=call) | InDoubt(call=call):
            return {
                "call_id": call.call_id,
                "name": call.name,
                "arguments": transcript.call(call.call_id).raw_arguments,
            }
        case Failed(kind=kind, sentence=sentence):
            return {"kind": kind, "sentence": sentence}
        case _:
            return {}


def describe_turn(turn: Turn) -> dict[str, Any]:
    """Return a turn that has ended, as watchers see it. `Pure.`"""
    return {
        "turn": turn.number,
        "status": turn.status,
        "is_complete": turn.status == "completed",
        "final_content": turn.final_content,
        "user_response": turn.user_response,
        "deliveries": list(turn.deliveries),
        "silent": turn.silent,
        "truncated": turn.truncated,
        "failure": turn.failure,
        "usage": turn.usage.model_dump(mode="json"),
    }
