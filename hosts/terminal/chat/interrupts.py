"""Ctrl-C as a callback in the event loop, instead of an exception that may be raised anywhere."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_handled_by(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the event loop at each SIGINT while the body runs. For the main thread only."""
    loop = asyncio.get_running_loop()

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
