"""How a process ends that serves until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGINT)
"""The signals that tell a process to stop: that of a supervisor, and Ctrl-C."""


class StopSignals:
    """The signals to stop that have come, as events to wait for: the `first` asks the process to finish what it does,
    the `second` to leave it. The third ends the process, whatever the event loop is busy with; so does the second, if
    the process `finishes` nothing."""

    def __init__(self, *, finishes: bool = True) -> None:
        self.first: asyncio.Event = asyncio.Event()
        self.second: asyncio.Event = asyncio.Event()
        self._expected = [self.first, self.second] if finishes else [self.first]
        self._loop = asyncio.get_running_loop()

    def note(self, number: int, _: object = None) -> None:
        """Note a signal."""
        if self._expected:
            self._loop.call_soon_threadsafe(self._expected.pop(0).set)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    async def finish(self, finishing: Coroutine[Any, Any, None]) -> None:
        """Return when this is finished, or at the second signal."""
        tasks = [asyncio.ensure_future(finishing), asyncio.ensure_future(self.second.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Yield the signals to stop that come in this block, in which an event loop runs; they do nothing else there."""
    signals = StopSignals()
    before = {each: signal.signal(each, signals.note) for each in STOPS}
    try:
        yield signals
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)


def end_process_after(seconds: float, code: int = 0) -> None:
    """End the process with this exit code if it has not ended by itself in so many seconds: what an application hangs
    in cannot always be cancelled. What is stored is complete at any moment, so nothing is lost."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
