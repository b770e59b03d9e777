"""The port of document sources: a function that returns the parts of documents that belong to a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DocumentQuery:
    """The message for which documents are wanted, and the conversation that it stands in."""

    text: str
    owner: str | None
    conversation_id: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


DocumentSource = Callable[[DocumentQuery], Iterable[str] | Awaitable[Iterable[str] | None] | None]
"""Returns the parts of documents that belong to a message, or None. A function, or a coroutine function."""
