"""A step as it was read from the store."""

from __future__ import annotations

from dataclasses import dataclass

from ..states.log import LogEntry


@dataclass(frozen=True, kw_only=True)
class StoredEntry(LogEntry):
    """A step of the log with the three digests, 16 bytes each, by which replay judges it.

    `digest` is that of the state which the step rested in. `chain` is the link stored with the row. `content` is the
    fingerprint of the row as it was read: undamaged, it and the link before give `chain`.
    """

    digest: bytes
    chain: bytes
    content: bytes
