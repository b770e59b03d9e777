"""How long the tests of faults take: a sample of every kind, or the long versions of `make faults`."""

import os

LONG = os.environ.get("TURNWISE_FAULTS", "sample") == "long"
"""Whether to run the long versions."""

MOST = int(os.environ.get("TURNWISE_PORTIONS", "1000"))
"""How many portions of its seeds the long version of a simulation may have at most."""


IS_WHOLE = LONG and "TURNWISE_PORTIONS" not in os.environ
"""Whether nothing of the long versions is left out."""


def portions(of_long: int) -> int:
    """Return how many portions of seeds to simulate, if the long version has so many. A sample has one."""
    return min(of_long, MOST) if LONG else 1
