"""Short fingerprints by which damage and divergence are found.

Each step's row holds a fingerprint of itself and of all rows before it: a chain, in which no link can be changed,
dropped or moved without breaking it there. It guards against damage, not against somebody who can compute it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

SIZE = 16
"""The length of every digest, in bytes."""

GENESIS = bytes(SIZE)
"""What stands before the first link."""


def digest(text: str) -> bytes:
    """The fingerprint of a text, also of one that damage has made invalid. `Pure.`"""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=SIZE).digest()


def content(columns: Sequence[object]) -> bytes:
    """The fingerprint of a row's columns, whatever types damage has given them. `Pure.`

    They are written as Python writes them in ASCII: it tells numbers, texts, bytes and None apart, has a sign for half
    a character too, and takes half the time of JSON, which counts where a whole log is checked.
    """
    return blake2b(ascii(tuple(columns)).encode("ascii"), digest_size=SIZE).digest()


def link(before: bytes, row: bytes) -> bytes:
    """The chain's next link, from the one before and the fingerprint of the row. `Pure.`"""
    return blake2b(before + row, digest_size=SIZE).digest()
