"""Asks the application's embedding function, and checks what it returns.

Vectors that are wrong would spoil every later search, so an answer is taken only if all of it can be right: one vector
for each text, all of the same number of dimensions, made of finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ..application_functions import innermost
from ..passages import cut_middle
from .parts import PartFailed, call_application
from .vectors import Embed

MAX_BYTES_OF_TEXT = 8_000
"""Bytes of each text that are embedded. Most models take in about 2,000 tokens."""

MAX_DIMENSIONS = 16_384
"""The longest vector that is taken: four times as long as those of the largest models."""

Vector = tuple[float, ...]


class Embedding:
    """Embeds texts, for at most `seconds` at a time. `name` identifies what makes the vectors."""

    def __init__(self, embed: Embed, seconds: float) -> None:
        self._embed = embed
        self.seconds = seconds
        self.name = _name_of(embed)

    async def vectors(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a vector for each text. Raises `PartFailed`."""
        shortened = [cut_middle(text, MAX_BYTES_OF_TEXT) for text in texts]
        return _checked(await call_application(self.seconds, "embedding", self._embed, shortened), len(texts))


def _name_of(embed: Any) -> str:
    name = getattr(embed, "name", None)
    if isinstance(name, str) and name.strip():
        return name
    called = innermost(embed)
    named = called if hasattr(called, "__qualname__") else type(called)
    return f"{named.__module__}.{named.__qualname__}"


def _checked(value: object, count: int) -> tuple[Vector, ...]:
    try:
        vectors = tuple(map(_vector, islice(value, count + 1))) if isinstance(value, Iterable) else ()
    except Exception as error:
        raise PartFailed("it returned something that is no vector") from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise PartFailed("it returned another number of vectors, or vectors of different dimensions")
    return vectors


def _vector(value: Any) -> Vector:
    """A vector as numbers of Python, whatever library it comes from."""
    if isinstance(value, str | bytes) or not 0 < len(value) <= MAX_DIMENSIONS:
        raise ValueError("no vector")
    vector = tuple(map(float, value))
    if not all(map(math.isfinite, vector)) or not any(vector):
        raise ValueError("a vector without a direction")
    return vector
