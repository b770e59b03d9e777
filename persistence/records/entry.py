"""A step of a log, as it is read from a store."""

from __future__ import annotations

from dataclasses import dataclass

from ...states.step import LogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(LogEntry):
    """A step of the log with the three digests, 16 bytes each, by which a replay judges it.

    `digest` is the digest of the state after the step. `chain` is the link that is stored with the row. `content` is
    the digest of the row as it was read: for an undamaged row, `content` and the link before it give `chain`.
    """

    digest: bytes
    chain: bytes
    content: bytes
