"""Ctrl-C as something to react to, instead of an error that comes from anywhere."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts(react: Callable[[], None]) -> Iterator[None]:
    """While the body runs, call `react` in the event loop at each SIGINT. Only in the main thread."""
    loop = asyncio.get_running_loop()

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(react)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
