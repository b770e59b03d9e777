"""The messages of a conversation in OpenAI's chat format, computed from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

from ..events import Event, Opened
from ..log import LogEntry
from ..projections.transcript import transcript
from ..step import Step
from ..values.mail import text_for_model
from ..values.messages import Message
from .writing import WireMessage, pair_results, write


def openai_messages(log: Iterable[LogEntry | tuple[Event, Step]]) -> list[WireMessage]:
    """Return everything that was said in a log, which is given as entries or as (event, step) pairs, as messages that a
    conversation can begin with: first the system prompt and the given history, exactly as it was given, then what was
    said since.

    Results stand in call order, directly behind the message that made the calls; a call that has no result yet has one
    that says so. Images of results stand in a user's message behind them. `Pure.`
    """
    entries = tuple(entry if isinstance(entry, LogEntry) else LogEntry.of(*entry) for entry in log)
    given = [message for entry in entries[:1] for message in _given(entry.event)]
    said = [_as_read(message) for message in transcript(entries) if message.seq > 1]
    written = [message for entry in pair_results(said) for message in write(entry, lambda call: call.call_id)]
    return cast(list[WireMessage], json.loads(json.dumps([*given, *written])))


def _given(event: Event) -> list[WireMessage]:
    """The messages that the conversation began with. The system prompt is one of them; it stands in the history where
    it was given in another way than as one text."""
    if not isinstance(event, Opened):
        return []
    has_prompt = bool(event.messages) and event.messages[0].is_system
    prompt = [{"role": "system", "content": event.system}] if event.system.strip() and not has_prompt else []
    return [*prompt, *(message.given for message in event.messages)]


def _as_read(message: Message) -> Message:
    """The message in the words that a model reads: that of another agent stands between tags."""
    return message if message.audience is None else message.replace(text=text_for_model(message))


def repairs_of(log: Iterable[LogEntry]) -> tuple[str, ...]:
    """Return what was repaired in the history that the conversation began with. `Pure.`"""
    return next((entry.event.repairs for entry in log if isinstance(entry.event, Opened)), ())
