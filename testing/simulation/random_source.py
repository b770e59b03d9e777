"""Dice that always fall the same way: every choice of a simulation follows from its seed."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class RandomSource:
    """Choices that follow from a seed, the same on every machine and in every process."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        """Yes, this often."""
        return self._random.random() < probability

    def pick(self, things: Sequence[T]) -> T:
        """One of these, all equally likely."""
        return things[int(self._random.random() * len(things))]

    def weighted(self, things: Mapping[T, float]) -> T:
        """One of the keys, as likely as its value says."""
        roll = self._random.random() * sum(things.values())
        for thing, weight in things.items():
            roll -= weight
            if roll < 0:
                return thing
        return next(iter(things))

    def number(self, low: int, high: int) -> int:
        """A whole number between these, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def seconds(self) -> float:
        """How long something takes: often no time at all, or whole seconds, in which things meet at one moment."""
        match self.number(0, 9):
            case 0 | 1 | 2:
                return 0.0
            case 3 | 4 | 5:
                return round(self._random.random() * 0.05, 6)
            case 6 | 7:
                return round(self._random.random() * 3, 6)
            case _:
                return float(self.number(1, 6))

    def uuid(self) -> uuid.UUID:
        """An id that nobody has, in the place of `uuid.uuid4`."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)
