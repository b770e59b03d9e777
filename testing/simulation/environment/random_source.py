"""The randomness of a simulation: every choice follows from its seed."""

from __future__ import annotations

import uuid

from ...generation.chance import Seeded


class RandomSource(Seeded):
    """Choices that follow from a seed, the same on every machine and in every process."""

    def seconds(self) -> float:
        """A duration: often none, or whole seconds, so that several things happen at the same moment."""
        match self.below(10):
            case 0 | 1 | 2:
                return 0.0
            case 3 | 4 | 5:
                return self.below(50_000) / 1_000_000
            case 6 | 7:
                return self.below(3_000) / 1_000
            case _:
                return float(self.number(1, 6))

    def uuid(self) -> uuid.UUID:
        """A new id, in the place of `uuid.uuid4`."""
        return uuid.UUID(int=self.below(2**128), version=4)
