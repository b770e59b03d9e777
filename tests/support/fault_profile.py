"""How long the tests of faults take: a sample of every kind, or the long versions of `make faults`."""

import os

LONG = os.environ.get("TURNWISE_FAULTS", "sample") == "long"
"""Whether to run the long versions."""
