"""What is handed in to a thread, and how the thread waits for it.

An item stays in the queue until the thread holds the lock of its worker. So whoever holds the lock and finds the queue
empty knows that nothing that was handed in before is unfinished. The queues of the standard library cannot tell that:
they hand an item over before the thread can take a lock.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Any


class WorkQueue:
    """Items for one thread, the oldest first. Anyone may `put`; only who holds the worker's lock takes items out."""

    __slots__ = ("_signal", "items")

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self._signal = Lock()
        """Held while there is no reason for the thread to wake up."""
        self._signal.acquire()

    def put(self, item: Any) -> None:
        """Put an item in, and wake the thread."""
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Have the thread look whether there is something to do. Costs next to nothing if it was told already."""
        if self._signal.locked():
            with suppress(RuntimeError):  # another thread did it in between
                self._signal.release()

    def wait(self, timeout: float | None) -> None:
        """Wait until there is an item, or a reason to wake up, or `timeout` seconds have passed."""
        if self.items:
            self._signal.acquire(blocking=False)
        else:
            self._signal.acquire(timeout=-1 if timeout is None else timeout)
