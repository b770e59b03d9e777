"""Where a conversation was copied from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The conversation that was copied, up to and including its step `seq`. It may have been deleted since."""

    conversation_id: str
    seq: int
