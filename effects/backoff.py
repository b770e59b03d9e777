"""How long to wait before something that has failed is tried again."""

from __future__ import annotations

MAX_DOUBLINGS = 30
"""After so many failures the wait no longer grows: it may go on for weeks, and 2 ** n would become huge."""


def wait_after(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures, at least one: `first`, doubled with each of them, up to
    `longest`. A short disturbance is overcome soon, and what is down for long is not flooded. `Pure.`"""
    return min(longest, first * 2.0 ** min(failures - 1, MAX_DOUBLINGS))
