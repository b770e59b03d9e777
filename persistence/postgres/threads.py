"""Threads that do what is handed in, in its order, until the very end of the process.

Those of an executor end before the functions that are registered with `atexit` are called. An engine without an event
loop that nobody has closed closes then, and needs its database for that: it tells the others what they go on with.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread

Work = Callable[[], None]

_Item = tuple["Future[None]", Work]


class DaemonThreads:
    """At most `most` threads with this name, each started when all others are busy. They end when they are told to, or
    when nobody holds this any more."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._crew = _Crew()
        self._end_when_dropped = weakref.finalize(self, self._crew.end, None)
        self._end_when_dropped.atexit = False

    def submit(self, work: Work) -> Future[None]:
        """Have a thread do this. What is returned is done when the thread is, and can be cancelled before it begins."""
        future: Future[None] = Future()
        self._crew.items.put((future, work))
        if not self._crew.idle.acquire(blocking=False) and self._crew.count < self._most:
            self._crew.add(self._name)
        return future

    def end(self, ended: Callable[[], None]) -> None:
        """End the threads behind what was handed in, and call this in the last one of them. Nothing may be handed in
        afterwards."""
        self._end_when_dropped.detach()
        self._crew.end(ended)


class _Crew:
    """What the threads share. They do not hold the `DaemonThreads`, so that those can be dropped."""

    def __init__(self) -> None:
        self.items = SimpleQueue[_Item | None]()
        self.idle = Semaphore(0)
        """How many threads wait for an item that nobody else is to take."""
        self.count = 0
        self._lock = Lock()
        self._ended: Callable[[], None] | None = None

    def add(self, name: str) -> None:
        """Start one more thread."""
        with self._lock:
            self.count += 1
            number = self.count
        Thread(target=self._serve, name=f"{name}_{number}", daemon=True).start()

    def end(self, ended: Callable[[], None] | None) -> None:
        """See `DaemonThreads.end`."""
        with self._lock:
            self._ended = ended
            has_threads = self.count > 0
        if has_threads:
            self.items.put(None)
        elif ended is not None:
            ended()

    def _serve(self) -> None:
        while (item := self.items.get()) is not None:
            _carry_out(*item)
            del item  # whoever handed it in may have gone
            self.idle.release()
        self._leave()

    def _leave(self) -> None:
        """Pass the end on to the next thread, or tell of it."""
        with self._lock:
            self.count -= 1
            is_last = self.count == 0
        if not is_last:
            self.items.put(None)
        elif self._ended is not None:
            self._ended()


def _carry_out(future: Future[None], work: Work) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)
