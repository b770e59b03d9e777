"""Where generators take their choices from: a seed, or Hypothesis.

A generator that is written against `Chance` serves both. Hypothesis can shrink what it draws; a seed gives the same
values in every process, and loads nothing.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from .values import TRICKY_TEXTS

T = TypeVar("T")


class Chance(ABC):
    """A source of choices. Wherever one value is plainer than the others it is the first, or False."""

    @abstractmethod
    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, all equally likely."""

    @abstractmethod
    def probably(self, probability: float) -> bool:
        """True with this probability."""

    @abstractmethod
    def text(self) -> str:
        """Any text that can be written as UTF-8."""

    def words(self) -> str:
        """A text that is not blank."""
        text = self.text()
        return text if text.strip() else f"{text}a"

    def number(self, low: int, high: int) -> int:
        """A whole number between these, both included."""
        return low + self.below(high - low + 1)

    def pick(self, values: Sequence[T]) -> T:
        """One of these, all equally likely."""
        return values[self.below(len(values))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """One of the keys, as likely as its weight says."""
        place = self.below(sum(weights.values()))
        for value, weight in weights.items():
            place -= weight
            if place < 0:
                return value
        raise ValueError("there is nothing to choose from")

    def often(self) -> bool:
        """True as often as False."""
        return self.below(2) == 1

    def rarely(self, one_in: int = 10) -> bool:
        """True once in so many times."""
        return self.below(one_in) == one_in - 1

    def flags(self, count: int) -> tuple[bool, ...]:
        """So many independent truth values, by a single choice."""
        chosen = self.below(2**count)
        return tuple(bool(chosen >> place & 1) for place in range(count))

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """So many of these, each at most once, in any order."""
        left, chosen = list(values), []
        for last in reversed(range(len(left) - count, len(left))):
            place = self.below(last + 1)
            chosen.append(left[place])
            left[place] = left[last]
        return chosen

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All of these, in any order."""
        order = list(values)
        for place in reversed(range(1, len(order))):
            other = self.below(place + 1)
            order[place], order[other] = order[other], order[place]
        return order


class Seeded(Chance):
    """Choices that follow from a seed, the same in every process."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return self._random.randrange(count)

    def probably(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def text(self) -> str:
        """One of the texts that break programs."""
        return self.pick(TRICKY_TEXTS)
