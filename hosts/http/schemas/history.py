"""What was said in a conversation, what its turns were, and what they cost."""

from __future__ import annotations

from typing import Any

from .body import Answer
from .states import MessageJson, TurnJson


class TranscriptAnswer(Answer):
    """What was said, oldest first, as a snapshot of the updates has it."""

    messages: list[MessageJson]


class MessagesAnswer(Answer):
    """What was said, oldest first, as messages in OpenAI's chat format."""

    messages: list[dict[str, Any]]


class TurnsAnswer(Answer):
    """The turns that have ended, oldest first."""

    turns: list[TurnJson]
