"""Looks at stored conversations, and changes nothing.

A database is opened for reading only and without its lock, so this works while a program has conversations going in
it, and after one that crashed (case P42).
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from ...persistence.address import Address
from ...persistence.lock import in_use
from ...persistence.store import Store, Summary
from ...states.messages import Message
from ...states.transcript import transcript
from .event_lines import event_lines
from .printable import one_line, printable, with_images, without_payloads

if TYPE_CHECKING:
    from ...persistence.replay import Divergence, Outcome
    from .settings import Settings

DIVERGED = 1
"""The exit code of a replay that came out differently."""

WIDEST = 200
"""The most characters that are shown of a call, and of its result."""


@asynccontextmanager
async def store_for(settings: Settings) -> AsyncIterator[Store]:
    """The database of these settings, open for reading. Raises `StoreError`."""
    store = await Store.open(settings.db, read_only=True)
    try:
        yield store
    finally:
        await store.close()


async def list_conversations(settings: Settings) -> int:
    """Print a line for each conversation: its id, its state, and when it moved last."""
    async with store_for(settings) as store:
        summaries = await store.list()
    if not summaries:
        print("There are no conversations yet.", file=sys.stderr)
    abandoned = any(summary.busy for summary in summaries) and not in_use(Address.of(settings.db))
    for summary in summaries:
        print(f"{summary.id}  {_state(summary, abandoned):<22}  {_moment(summary.updated_at)}")
    return 0


async def show(settings: Settings, conversation_id: str, events: bool) -> int:
    """Print what was said, or with `events` what happened."""
    async with store_for(settings) as store:
        entries = await store.entries(conversation_id)
    for line in event_lines(entries) if events else said(transcript(entries)):
        print(line)
    return 0


async def export(settings: Settings, conversation_id: str) -> int:
    """Print the log as JSON, a line for each step behind a first one that names the format."""
    from ...persistence.export import export_lines

    async with store_for(settings) as store:
        entries = await store.entries(conversation_id)
    for line in export_lines(entries):
        print(line)
    return 0


async def replay(settings: Settings, conversation_id: str | None) -> int:
    """Replay one conversation, or with None all of them, and print what comes of each."""
    from ...persistence.replay import replay_conversation

    diverged = False
    async with store_for(settings) as store:
        for each in [conversation_id] if conversation_id else [summary.id for summary in await store.list()]:
            report = await replay_conversation(store, each)
            print(f"{each}  {verdict(report.events, report.divergence)}")
            diverged = diverged or report.divergence is not None
    return DIVERGED if diverged else 0


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


def verdict(events: int, divergence: Divergence | None) -> str:
    """What came of a replay: a sentence, and a few lines more where it came out differently. `Pure.`"""
    if divergence is None:
        return f"{events} events replayed, no divergence."
    event = divergence.event.to_json() if divergence.event else "missing, or cannot be read"
    return "\n".join(
        (
            f"{events} events replayed, then a divergence at seq {divergence.seq}.",
            f"  reason    {divergence.reason}",
            f"  event     {without_payloads(printable(event))}",
            f"  expected  {_outcome(divergence.expected)}",
            f"  actual    {_outcome(divergence.actual)}",
        )
    )


def _outcome(outcome: Outcome) -> str:
    """An outcome as JSON: effects, the end of a turn, and the state, or its digest where only that is known."""
    told: dict[str, object] = {"effects": [json.loads(effect.to_json()) for effect in outcome.effects]}
    if outcome.ended is not None:
        told["ended"] = json.loads(outcome.ended.to_json())
    if outcome.state is not None:
        told["state"] = json.loads(outcome.state.to_json())
    if outcome.digest is not None:
        told["digest"] = outcome.digest.hex()
    return printable(json.dumps(told, ensure_ascii=False)) if outcome.digest is not None else "nothing"


def _state(summary: Summary, abandoned: bool) -> str:
    return "interrupted" if summary.busy and abandoned else summary.state


def _moment(at: datetime) -> str:
    """A moment by the clock of whoever reads it."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
