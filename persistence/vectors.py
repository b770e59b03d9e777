"""Vectors of texts, which are compared by the angle between them: how they are stored, and which are nearest.

There is no index of vectors: an owner has some thousands of texts. Ten thousand vectors of 1,536 numbers are compared
in a quarter of a second with numpy, most of which it takes to read them, and in a second and a half without it. A
vector is stored with length 1, so that a sum of products tells the angle between two of them.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from operator import mul

from ..states.errors import InvalidInput

BATCH = 2000
"""How many vectors are compared at a time. Chosen so that they take some megabytes."""

Vectors = Sequence[tuple[int, bytes]]
"""Stored vectors, with the numbers of their texts."""


def unit_vector(vector: Sequence[float]) -> tuple[float, ...]:
    """Return the vector with length 1, so that a sum of products tells the angle between two of them; a vector of zeros
    stays as it is. `Pure.`

    Raises `InvalidInput` if it is empty, or holds anything but finite numbers.
    """
    try:
        numbers = [float(number) for number in vector]
        length = math.hypot(*numbers)
    except (TypeError, ValueError, OverflowError):
        numbers, length = [], 0.0
    if not numbers or not math.isfinite(length):
        raise InvalidInput("A vector of a text must be a list of finite numbers, with at least one.")
    return tuple(number / length if length else 0.0 for number in numbers)


def encoded(vector: Sequence[float]) -> bytes:
    """Return a vector as it is stored: with length 1, in 32-bit numbers, the lowest byte first. Raises `InvalidInput`.
    `Pure.`"""
    numbers = array("f", unit_vector(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def nearest_of(vector: bytes, batches: Iterable[Vectors], count: int) -> list[int]:
    """Return the numbers of the texts whose vectors have the smallest angle to this one, the nearest first."""
    scored: list[tuple[float, int]] = []
    for batch in batches:
        scored = nlargest(count, (*scored, *_scores(vector, batch)))
    return [number for _, number in scored]


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
