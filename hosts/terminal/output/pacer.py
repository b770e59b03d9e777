"""Draws often enough to look alive, and seldom enough to leave time for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

_PAUSE = 0.04
"""The least number of seconds between two drawings."""

_PAUSE_PER_SECOND = 5
"""How many seconds pass after a drawing for each second that it took: a slow one may not hold up everything else."""


class Pacer:
    """Calls a function when it is requested, but not too often: requests that come too early are one call later.

    Without a running event loop the function is called at each request.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._next = 0.0
        self._waiting: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Call the function now, or when the pause is over."""
        if self._waiting is not None:
            return
        wait, loop = self._next - perf_counter(), _running_loop()
        if wait > 0 and loop is not None:
            self._waiting = loop.call_later(wait, self._call)
        else:
            self._call()

    def cancel(self) -> None:
        """Forget the call that is due later, if there is one."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _call(self) -> None:
        self._waiting = None
        begun = perf_counter()
        self._function()
        ended = perf_counter()
        self._next = ended + max(_PAUSE, (ended - begun) * _PAUSE_PER_SECOND)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
