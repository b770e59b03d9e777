"""Where made-up things get their choices from.

One set of builders serves two masters. Hypothesis wants to know of every choice, so that it can make a counterexample
smaller. A walk of a hundred thousand steps has no use for that: for it, dice that follow from a seed make the same
choices some fifty times as fast. Whatever a builder could choose, the first choice is the plainest: a counterexample
shrinks towards it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from .values import TRICKY, texts

T = TypeVar("T")
P = ParamSpec("P")


class Chance(ABC):
    """A source of choices."""

    @abstractmethod
    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""

    @abstractmethod
    def text(self) -> str:
        """Any text that can be written as UTF-8."""

    def words(self) -> str:
        """A text that says something."""
        text = self.text()
        return text if text.strip() else f"{text}a"

    def pick(self, things: Sequence[T]) -> T:
        """One of these."""
        return things[self.below(len(things))]

    def often(self) -> bool:
        """Yes as often as no; no is the plainer."""
        return self.below(2) == 1

    def rarely(self, one_in: int = 10) -> bool:
        """Yes, once in so many times."""
        return self.below(one_in) == one_in - 1

    def flags(self, count: int) -> tuple[bool, ...]:
        """So many independent yeses and noes, by a single choice."""
        chosen = self.below(2**count)
        return tuple(bool(chosen >> place & 1) for place in range(count))

    def some(self, things: Sequence[T]) -> tuple[T, ...]:
        """Some of these, in their order, or none."""
        return tuple(thing for thing, chosen in zip(things, self.flags(len(things)), strict=True) if chosen)

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """All of these, in any order."""
        left = list(things)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]


@cache
def _numbers(count: int) -> SearchStrategy[int]:
    return st.integers(0, count - 1)


class Drawn(Chance):
    """Choices that Hypothesis makes, and can make smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, sooner a small one when it shrinks."""
        return self.draw(_numbers(count)) if count > 1 else 0

    def text(self) -> str:
        """Any text that can be written as UTF-8."""
        return self.draw(texts())


class Seeded(Chance):
    """Choices that follow from a seed, the same in every process."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, each as likely as the others."""
        return int(self._random.random() * count)

    def text(self) -> str:
        """One of the tricky texts."""
        return self.pick(TRICKY)


def by_chance(make: Callable[Concatenate[Chance, P], T]) -> Callable[P, SearchStrategy[T]]:
    """A function that gives a Hypothesis strategy, from a builder that makes its choices by `Chance`."""

    @st.composite
    def drawn(draw: st.DrawFn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return make(Drawn(draw), *args, **kwargs)

    @wraps(make)
    def strategy(*args: P.args, **kwargs: P.kwargs) -> SearchStrategy[T]:
        return drawn(*args, **kwargs)

    return strategy
