"""Verifies a log: no step is missing, and none was changed since it was stored.

SQLite checks the structure of its pages, not their contents, so it does not notice a bit that flipped in a text.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Damaged
from .codec import decode
from .conversation_record import ConversationRecord
from .digests import GENESIS, digest, link
from .entry import StoredEntry
from .rows import EventRow, HeadRow


def read_steps(rows: Iterable[EventRow], seq: int = 0, chain: bytes = GENESIS) -> tuple[StoredEntry, ...]:
    """Return the steps in these rows, which follow the step `seq`, whose link is `chain`. `Pure.`

    Raises `Damaged` if a step cannot be read, is missing between two others, or is not what was stored.
    """
    entries: list[StoredEntry] = []
    for row in rows:
        entry = decode(row)
        check_link(entry, seq, chain)
        entries.append(entry)
        seq, chain = entry.seq, entry.chain
    return tuple(entries)


def read_record(record: ConversationRecord) -> tuple[StoredEntry, ...]:
    """Return all steps of a record. `Pure.`

    Raises `Damaged` like `read_steps`, and if the head row does not belong to the newest step.
    """
    entries = read_steps(record.steps)
    seq, chain, state = (entries[-1].seq, entries[-1].chain, entries[-1].digest) if entries else (0, GENESIS, b"")
    check_end(record.head, seq, chain)
    check_state(record.head, state)
    return entries


def check_link(entry: StoredEntry, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless `entry` is unchanged and follows the step `seq`, whose link is `chain`. `Pure.`"""
    if entry.seq != seq + 1:
        raise missing(seq + 1)
    if link(chain, entry.content) != entry.chain:
        raise Damaged(entry.seq, f"Step {entry.seq} is not what was stored: the file is damaged.")


def check_end(head: HeadRow, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless the step `seq`, whose link is `chain`, is the newest one by the head row. `Pure.`"""
    if type(head.seq) is int and head.seq > seq:
        raise missing(seq + 1)
    if (head.seq, head.chain) != (seq, chain):
        raise Damaged(seq, f"The head of the conversation is not its newest step, {seq}: the file is damaged.")


def check_state(head: HeadRow, state: bytes) -> None:
    """Raise `Damaged` unless `state` is the digest of the state in the head row. `Pure.`"""
    if type(head.state) is not str or digest(head.state) != state:
        raise Damaged(head.seq, f"The state behind step {head.seq} is not what was stored: the file is damaged.")


def missing(seq: int) -> Damaged:
    """Return the error for a step that should be there. `Pure.`"""
    return Damaged(seq, f"Step {seq} is missing: the file is damaged.")
