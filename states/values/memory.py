"""What may be found again of what was said: whose texts are searched, for what, and what a text found looks like.

These values are the language between the effects, which ask, and the stores, which search. They are never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True)
class MemoryScope:
    """Whose texts may be found: those of all conversations of the `owner`, without the texts of this conversation from
    the turn `turn` on, because a request holds these anyway. Without an owner only this conversation is searched."""

    conversation_id: str
    owner: str | None
    turn: int


@dataclass(frozen=True)
class MemoryQuery:
    """A search by keywords, of which a text need not hold all. `since` and `until` bound the moments at which the texts
    were said, both included; None is no bound. At most `limit` texts are found."""

    scope: MemoryScope
    keywords: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    limit: int


@dataclass(frozen=True)
class FoundText:
    """A text that was said in a turn of a conversation, by the user or by the assistant."""

    conversation_id: str
    turn: int
    at: datetime
    role: Literal["user", "assistant"]
    text: str
