"""Keeps the last of what is written for each request of a conversation, since most of it stays the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S", bound=tuple[object, ...])
T = TypeVar("T")


class Kept(Generic[S, T]):
    """What was made last, and the source that it was made from."""

    __slots__ = ("_made", "_source")

    _made: T

    def __init__(self) -> None:
        self._source: S | None = None

    def made_from(self, source: S, make: Callable[[S], T]) -> T:
        """Return what `make` makes from the source: what was made last, if that was made from an equal one."""
        # Tuples are compared by the identity of their items first, and most of these are the same objects.
        if source != self._source:
            self._made, self._source = make(source), source
        return self._made
