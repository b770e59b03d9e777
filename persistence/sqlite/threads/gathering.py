"""What an event loop does once in its next iteration, or another thread if the loop is closed before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gathering:
    """Calls `collect` once in the next iteration of the event loop that asks for it, however often it asks until then.

    An event loop that is closed drops the calls that it was to make. Then `abandon` is called instead, so that somebody
    else can do the work.
    """

    __slots__ = ("_abandon", "_collect", "_loop")

    def __init__(self, collect: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._collect = collect
        self._abandon = abandon
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self) -> None:
        """Have `collect` called in the next iteration. To be called in an event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(_Call(self._run, self._drop))

    def _run(self) -> None:
        self._loop = None
        self._collect()

    def _drop(self) -> None:
        self._loop = None
        self._abandon()


class _Call:
    """A call that an event loop is to make: it does `run`, or `drop` if the event loop has dropped it."""

    __slots__ = ("_drop", "_run", "_was_made")

    def __init__(self, run: Callable[[], None], drop: Callable[[], None]) -> None:
        self._run = run
        self._drop = drop
        self._was_made = False

    def __call__(self) -> None:
        self._was_made = True
        self._run()

    def __del__(self) -> None:
        if not self._was_made:
            self._drop()
