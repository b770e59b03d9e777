"""Waits for what another thread certainly does."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..http.live_server import PATIENCE


def until(holds: Callable[[], object]) -> None:
    """Return when this holds. Raises AssertionError if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "What was waited for did not happen."
        time.sleep(0.005)
