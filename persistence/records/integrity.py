"""Tells whether a log is whole: no step missing, none changed since it was stored.

SQLite checks the shape of its pages, not what stands in them, so a flipped bit in a text goes unnoticed there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Damaged
from .digests import GENESIS, digest, link
from .entry import StoredEntry
from .rows import RestRow


def check_link(entry: StoredEntry, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless `entry` is, unchanged, the one behind the step `seq`, whose link is `chain`. `Pure.`"""
    if entry.seq != seq + 1:
        raise missing(seq + 1)
    if link(chain, entry.content) != entry.chain:
        raise Damaged(entry.seq, f"Step {entry.seq} is not what was stored once: the file is damaged.")


def check_end(rest: RestRow, seq: int, chain: bytes) -> None:
    """Raise `Damaged` unless the step `seq`, whose link is `chain`, is the one that the conversation rests behind.
    `Pure.`"""
    if type(rest.seq) is int and rest.seq > seq:
        raise missing(seq + 1)
    if (rest.seq, rest.chain) != (seq, chain):
        raise Damaged(seq, f"The conversation does not rest behind its newest step, {seq}: the file is damaged.")


def check_whole(entries: Iterable[StoredEntry], rest: RestRow) -> None:
    """Raise `Damaged` unless these are all steps of the conversation, unchanged, and it rests in the state of the last
    one. `Pure.`"""
    seq, chain, state = 0, GENESIS, b""
    for entry in entries:
        check_link(entry, seq, chain)
        seq, chain, state = entry.seq, entry.chain, entry.digest
    check_end(rest, seq, chain)
    if type(rest.state) is not str or digest(rest.state) != state:
        raise Damaged(seq, f"The state behind step {seq} is not what was stored once: the file is damaged.")


def missing(seq: int) -> Damaged:
    """The error for a step that should be there. `Pure.`"""
    return Damaged(seq, f"Step {seq} is missing: the file is damaged.")
