"""Short digests by which damage and divergence are found.

Each row of a log holds a digest of itself and of all rows before it. In this chain no link can be changed, dropped or
moved without breaking the chain there. It protects against damage, not against somebody who computes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

SIZE = 16
"""The length of every digest, in bytes."""

DELIVERIES = 2**48
"""Checksums of deliveries are counted modulo this number, so that SQLite can add them as integers."""

GENESIS = bytes(SIZE)
"""The link before the first one."""


def digest(text: str) -> bytes:
    """Return the digest of a text, also of one that damage has made invalid. `Pure.`"""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=SIZE).digest()


def content(columns: Sequence[object]) -> bytes:
    """Return the digest of a row's columns, whatever types damage has given them. `Pure.`

    The columns are written as Python writes them in ASCII. That tells numbers, texts, bytes and None apart, can write
    half of a surrogate pair, and takes half the time of JSON, which matters where a whole log is verified.
    """
    return blake2b(ascii(tuple(columns)).encode("ascii"), digest_size=SIZE).digest()


def link(before: bytes, row: bytes) -> bytes:
    """Return the next link of the chain, from the link before it and the digest of the row. `Pure.`"""
    return blake2b(before + row, digest_size=SIZE).digest()


def delivery_checksum(target: object, effect_id: object) -> int:
    """Return a number for a delivery. The sum of those in an outbox, modulo `DELIVERIES`, changes when one of them is
    lost or goes to another target. `Pure.`"""
    return int.from_bytes(content((target, effect_id))[:6], "big")


def deliveries_checksum(rows: Iterable[tuple[object, ...]]) -> int:
    """Return the sum of the checksums of deliveries, each a target, an effect id and anything else. `Pure.`"""
    return sum(delivery_checksum(*row[:2]) for row in rows) % DELIVERIES


def origin_checksum(origin: object, seq: object, chain: object) -> bytes:
    """Return the digest by which it is found that the origin of a copy was changed: its id, the newest step that was
    copied, and the link of that step. `Pure.`"""
    return content((origin, seq, chain))
