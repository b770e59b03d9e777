"""Vectors of texts: they are stored, and compared with all vectors of an owner.

There is no index of vectors: an owner has some thousands of texts. Ten thousand vectors of 1,536 numbers are compared
in a quarter of a second with numpy, most of which it takes to read them, and in a second and a half without it. A
vector is stored with length 1, so that a sum of products tells the angle between two of them.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from operator import mul

from ....states.values.acts import FoundText, MemoryScope
from ...records.vectors import unit_vector
from .finding import IN_GROUP, MAX_FOUND, Window, texts_of
from .scopes import group_of
from .text_index import TEXT

_BATCH = 2000
"""How many vectors are compared at a time. Chosen so that they take some megabytes."""

_WITHOUT = f"""
SELECT texts.id, {TEXT} FROM texts JOIN conversations ON key = texts.conversation
WHERE {IN_GROUP} AND conversations.owner IS :owner
AND NOT EXISTS (SELECT 1 FROM text_vectors WHERE text_vectors.text = texts.id AND space = :space)
ORDER BY texts.at DESC, texts.id DESC
"""
_KEEP = """
INSERT INTO text_vectors (text, space, vector) SELECT id, ?, ? FROM texts WHERE id = ?
ON CONFLICT (text, space) DO UPDATE SET vector = excluded.vector
"""
_VECTORS = f"""
SELECT texts.id, vector FROM texts CROSS JOIN text_vectors ON text_vectors.text = texts.id AND space = :space
WHERE {IN_GROUP} AND texts.at BETWEEN :since AND :until AND length(vector) = :size
"""

Vectors = list[tuple[int, bytes]]
"""Stored vectors, with the numbers of their texts."""


def without(driver: sqlite3.Connection, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
    """Return texts that have no vector in this space, the newest first, each with its number."""
    group = group_of(driver, scope)
    if group is None or limit <= 0:
        return ()
    rows = driver.execute(_WITHOUT, {**group._asdict(), "space": space})
    return tuple(islice(((number, text) for number, text in rows if type(text) is str), limit))


def encoded(vector: Sequence[float]) -> bytes:
    """Return a vector as it is stored: with length 1, in 32-bit numbers, the lowest byte first. Raises `InvalidInput`.
    `Pure.`"""
    return _bytes(array("f", unit_vector(vector)))


def keep(driver: sqlite3.Connection, space: str, vectors: Mapping[int, bytes]) -> None:
    """Store vectors, which are `encoded`, of those texts that are still there."""
    driver.executemany(_KEEP, [(space, vector, number) for number, vector in vectors.items()])


def nearest(
    driver: sqlite3.Connection, scope: MemoryScope, space: str, vector: bytes, window: Window, limit: int
) -> tuple[FoundText, ...]:
    """Return the texts whose vectors have the smallest angle to `vector`, which is `encoded`, the nearest first."""
    group = group_of(driver, scope)
    if group is None or limit <= 0:
        return ()
    given = {**group._asdict(), **window._asdict(), "space": space, "size": len(vector)}
    rows, most = driver.execute(_VECTORS, given), min(limit, MAX_FOUND)
    scored: list[tuple[float, int]] = []
    while batch := rows.fetchmany(_BATCH):
        scored = nlargest(2 * most, (*scored, *_scores(vector, batch)))  # forks have texts in common
    return texts_of(driver, group, (number for _, number in scored), most)


def _scores(vector: bytes, stored: Vectors) -> Iterator[tuple[float, int]]:
    """Yield how near each stored vector is to this one, with the number of its text."""
    numbers = [number for number, _ in stored]
    try:
        import numpy
    except ImportError:
        wanted = _numbers(vector)
        return zip((sum(map(mul, wanted, _numbers(each))) for _, each in stored), numbers, strict=True)
    table = numpy.frombuffer(b"".join(each for _, each in stored), dtype="<f4").reshape(len(stored), -1)
    return zip((table @ numpy.frombuffer(vector, dtype="<f4")).tolist(), numbers, strict=True)


def _numbers(vector: bytes) -> array[float]:
    numbers = array("f")
    numbers.frombytes(vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _bytes(numbers: array[float]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
