"""The messages of a conversation in OpenAI's chat format, computed from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

from ..events import Opened
from ..log import LogEntry
from ..projections.transcript import transcript
from ..values.mail import text_for_model
from ..values.messages import Message
from .writing import WireMessage, pair_results, write


def openai_messages(log: Iterable[LogEntry]) -> list[WireMessage]:
    """Return everything that was said as messages that a conversation can begin with: first the system prompt and the
    given history, exactly as it was given, then what was said since.

    Results stand in call order, directly behind the message that made the calls; a call that has no result yet has one
    that says so. Images of results stand in a user's message behind them. `Pure.`
    """
    entries = tuple(log)
    opened = entries[0].event
    assert isinstance(opened, Opened), "every log begins with the opening of its conversation"
    given = [message.given for message in opened.messages]
    has_prompt = bool(opened.messages) and opened.messages[0].is_system
    prompt = [{"role": "system", "content": opened.system}] if opened.system.strip() and not has_prompt else []
    said = [_as_read(message) for message in transcript(entries) if message.seq > entries[0].seq]
    written = [message for entry in pair_results(said) for message in write(entry, lambda call_id: call_id)]
    return cast(list[WireMessage], json.loads(json.dumps([*prompt, *given, *written])))


def _as_read(message: Message) -> Message:
    """The message in the words that a model reads: that of another agent stands between tags."""
    return message if message.audience is None else message.replace(text=text_for_model(message))


def repairs_of(log: Iterable[LogEntry]) -> tuple[str, ...]:
    """Return what was repaired in the history that the conversation began with. `Pure.`"""
    return next((entry.event.repairs for entry in log if isinstance(entry.event, Opened)), ())
