"""Where a conversation comes from that is a copy of another one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """The conversation that was copied, which may be deleted since, up to and with its step `seq`."""

    conversation_id: str
    seq: int
