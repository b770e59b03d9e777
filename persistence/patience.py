"""What a program does while its storage takes nothing, and how it tells how much time has passed meanwhile.

A disk is full for a minute, a server is restarted, a computer sleeps. What was to be stored is tried again until it is,
sooner at first, so that a short disturbance is overcome soon and a long one costs little.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..states.errors import Refused
from .errors import StorageFailed

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
"""Seconds between two attempts while the store takes nothing; doubled each time."""


async def until_stored(attempt: Callable[[], Awaitable[T]], gives_up: Callable[[], bool] = lambda: False) -> T:
    """Return what the attempt returns, made again for as long as the store takes nothing. Once `gives_up` says so,
    raises what the last one has raised: `StorageFailed`, or `Refused` for the same reason."""
    wait = FIRST_WAIT
    while True:
        with storage_failures_passed_over(unless=gives_up):
            return await attempt()
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


@contextmanager
def storage_failures_passed_over(*, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Leave this block when the store takes nothing, whether it says so itself or a request was refused for it. What is
    in it is tried again later. `unless` is asked then whether to raise the error all the same."""
    try:
        yield
    except StorageFailed:
        if unless():
            raise
    except Refused as refused:
        if refused.code != "storage" or unless():
            raise


@dataclass(frozen=True)
class Moment:
    """A moment by two clocks, in seconds: the monotonic one stands still while a computer sleeps, the other one may be
    set."""

    monotonic: float
    wall: float

    def since(self, before: Moment) -> float:
        """Seconds that have passed at most. `Pure.`"""
        return max(self.monotonic - before.monotonic, self.wall - before.wall)


NEVER = Moment(-math.inf, -math.inf)
"""Before all moments."""
