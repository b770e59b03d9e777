"""Looks at stored conversations, and changes nothing.

A database is opened for reading only and without its lock, so this works while a program has conversations going in
it, and after one that crashed (case P42).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from ....effects.text import printable
from ....persistence.maintenance.fork import origin_of
from ....persistence.records.origin import Origin
from ....persistence.records.summary import Summary
from ....persistence.sqlite.address import Address
from ....persistence.sqlite.lock import in_use
from ....states.projections.transcript import transcript
from ....states.values.messages import Message
from ..output.event_lines import event_lines
from ..output.notices import remark
from ..output.printable import one_line, with_images
from .stores import store_for

if TYPE_CHECKING:
    from ..settings import Settings

WIDEST = 200
"""The most characters that are shown of a call, and of its result."""


async def list_conversations(settings: Settings) -> int:
    """Print a line for each conversation: its id, its state, when it moved last, and where it was copied from."""
    async with store_for(settings) as store:
        summaries = await store.list()
    if not summaries:
        remark("There are no conversations yet.")
    abandoned = any(summary.busy for summary in summaries) and not in_use(Address.of(settings.db))
    for summary in summaries:
        copied = "" if summary.origin is None else f"  {origin_told(summary.origin)}"
        print(f"{summary.id}  {_state(summary, abandoned):<22}  {_moment(summary.updated_at)}{copied}")
    return 0


async def show(settings: Settings, conversation_id: str, events: bool) -> int:
    """Print what was said, or with `events` what happened."""
    async with store_for(settings) as store:
        entries = await store.entries(conversation_id)
        origin = await origin_of(store, conversation_id)
    if origin is not None:
        print(f"({origin_told(origin)})")
    for line in event_lines(entries) if events else said(transcript(entries)):
        print(line)
    return 0


def said(messages: tuple[Message, ...]) -> Iterator[str]:
    """The lines of a conversation, each message under the one who said it. `Pure.`"""
    names = {call.call_id: call.name for message in messages for call in message.tool_calls}
    for place, message in enumerate(messages):
        if place and message.role == "user":
            yield ""
        if message.role == "tool":
            verb = message.stopped or ("failed" if message.error else "returned")
            text = one_line(with_images(message.text, len(message.images)), WIDEST)
            yield f"  {names[message.tool_call_id or '']} {verb}: {text}"
            continue
        yield f"{message.role}:"
        if (text := with_images(message.text, len(message.images))).strip():
            yield printable(text)
        for call in message.tool_calls:
            yield one_line(f"{call.name}({call.arguments})", WIDEST)


def origin_told(origin: Origin) -> str:
    """Where a conversation was copied from. `Pure.`"""
    return f"forked from {one_line(origin.conversation_id)} at step {origin.seq}"


def _state(summary: Summary, abandoned: bool) -> str:
    return "interrupted" if summary.busy and abandoned else summary.state


def _moment(at: datetime) -> str:
    """A moment by the clock of whoever reads it."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
