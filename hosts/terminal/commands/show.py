"""`turnwise show`: what was said in a conversation, or its events.

The database is opened read-only and without its lock, so this works while a program has it open, and after one that
crashed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ....effects.printable import printable
from ....engine.turns import message_data
from ....persistence.maintenance.fork import origin_of
from ....persistence.summaries import details_of
from ....states.step import LogEntry
from ....states.transcript import transcript
from ....states.values.messages import Message
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..output.event_lines import event_lines
from ..output.json_document import print_json
from ..output.printable import one_line, with_images
from .conversation_list import described_origin, origin_line

MAX_CALL = 200
"""The most characters that are shown of a call, and of its result."""


async def show(settings: Settings, given_id: str, events: bool, as_json: bool) -> int:
    """Print the transcript of a conversation, or with `events` a line for each of its events."""
    async with open_for_reading(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        entries = await store.entries(conversation_id)
        origin = await origin_of(store, conversation_id)
    if as_json:
        content = _events(entries) if events else _messages(transcript(entries))
        details = details_of(entries)
        about = {"title": details.title, "owner": details.owner, "metadata": dict(details.metadata)}
        print_json({"id": conversation_id, **about, "forked_from": described_origin(origin), **content})
        return 0
    if origin is not None:
        print(f"({origin_line(origin)})")
    for line in event_lines(entries) if events else transcript_lines(transcript(entries)):
        print(line)
    return 0


def _events(entries: Iterable[LogEntry]) -> dict[str, Any]:
    return {"events": [{"seq": entry.seq, "event": json.loads(entry.event.to_json())} for entry in entries]}


def _messages(messages: Iterable[Message]) -> dict[str, Any]:
    return {"messages": [message_data(message) for message in messages]}


def transcript_lines(messages: tuple[Message, ...]) -> Iterator[str]:
    """The lines of a transcript: each message under its role. `Pure.`"""
    names = {call.call_id: call.name for message in messages for call in message.tool_calls}
    for index, message in enumerate(messages):
        if index and message.role == "user":
            yield ""
        if message.role == "tool":
            yield _result_line(message, names[message.tool_call_id or ""])
            continue
        yield _heading(message)
        if (text := with_images(message.text, len(message.images))).strip():
            yield printable(text)
        for call in message.tool_calls:
            yield one_line(f"{call.name}({call.raw_arguments})", MAX_CALL)


def _heading(message: Message) -> str:
    """Who says it; of the message of another agent also for whom it is."""
    match message.audience:
        case None:
            return f"{message.role}:"
        case "user":
            return f"{one_line(message.origin)}, for the user:"
        case "agent":
            return f"{one_line(message.origin)}, for this agent:"


def _result_line(message: Message, tool: str) -> str:
    outcome = message.stopped or ("failed" if message.error else "returned")
    text = one_line(with_images(message.text, len(message.images)), MAX_CALL)
    return f"  {tool} {outcome}: {text}"
