"""A thread of its own for a connection, so that the event loop does not wait for a disk.

Between a task and the disk there are two hand-overs: a plain queue into the thread, and one call into the event loop
when the work is done. An executor would need twice as many, which takes longer than a commit of SQLite.

The thread holds the lock of its worker while it handles an item, and no longer. An item stays in the queue until the
thread holds that lock. So whoever holds the lock and finds the queue empty knows that nothing that was handed in before
is unfinished, and may use the connection in between (`writer.InlineCommits` says when that pays). The queues of the
standard library cannot tell that: they hand an item over before the thread can take a lock.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

from sqlalchemy import Connection

from ...states.errors import StoreError
from ..sql.pending import PendingResult
from .file import translated

T = TypeVar("T")


Opening = Callable[[ExitStack], Connection]
"""Opens a connection, and leaves on the stack what closes it."""


Start = Callable[["Worker"], Callable[[], None]]
"""Begins to serve a worker, and returns what ends that. The function returned must not hold the `ConnectionThread`."""


class Job(PendingResult):
    """Work for the thread, and the result that its caller waits for."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work: Callable[[], Any] = work


END = object()
"""The last item: the thread ends behind it."""


class Worker:
    """What runs in the thread: it owns the connection and does what is handed in, in order.

    It holds no reference to the `ConnectionThread`, so that one that nobody holds any more can be collected.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: WorkQueue = WorkQueue()
        self.lock: Lock = Lock()
        """Held by the thread that uses the connection now."""
        self.connection: Connection
        self._undo = ExitStack()
        self._finished: list[PendingResult] = []

    def serve(self) -> None:
        """Handle what is handed in, until `END`."""
        ended = False
        while not ended:
            self.queue.wait(self.pause)
            if self.queue.items or self.pause == 0:
                with self.lock:
                    ended = self.handle_next()
                self.report()
        with suppress(Exception):
            self.close()

    @property
    def pause(self) -> float | None:
        """For how many seconds there is nothing to do unless something is handed in; None for ever."""
        return None

    def handle_next(self) -> bool:
        """Handle the oldest item, or do what is due if there is none. Returns whether the item was `END`.

        To be called by the holder of the lock. Nothing of the item is kept: it may hold what should be collected.
        """
        if not self.queue.items:
            self.do_due()
            return False
        item = self.queue.items.popleft()
        if item is END:
            return True
        self.handle(item)
        return False

    def report(self) -> None:
        """Report the results of what was handled. To be called without the lock: a caller may want it at once."""
        if self._finished:
            finished, self._finished = self._finished, []
            PendingResult.report(finished)

    def finish(self, results: Iterable[PendingResult]) -> None:
        """Have these results reported."""
        self._finished.extend(results)

    def do_due(self) -> None:
        """Do what is due in a moment in which nothing is handed in."""

    def handle(self, item: Any) -> None:
        """Do the work of one item."""
        assert isinstance(item, Job)
        try:
            with translated(self.name):
                item.value = item.work()
        except BaseException as error:
            item.error = error
        self.finish((item,))

    def open(self, opening: Opening) -> None:
        """Open the connection, or leave nothing open."""
        with ExitStack() as undo:
            self.connection = opening(undo)
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._undo.close()


class ConnectionThread:
    """One connection and the only thread that uses it. Work is done in the order in which it is handed in.

    Work that was handed in is done, whatever becomes of the task that waits for it, so a commit is never left in doubt.
    A thread that nobody closed ends when nobody holds this object any more, at the latest when the process ends.
    """

    def __init__(self, worker: Worker, start: Start | None = None) -> None:
        self._worker = worker
        self._closed = False
        self._end = weakref.finalize(self, (start or in_thread)(worker))

    async def open(self, opening: Opening) -> None:
        """Open the connection in the thread. Raises `StoreError`; then nothing stays open, and the thread ends."""
        try:
            await self._done(lambda: self._worker.open(opening))
        except BaseException:
            await self.close()
            raise

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in the thread, and return what it returns.

        Errors of the driver are raised as `StorageFailed`, all others as they are. A caller that is cancelled stops
        waiting, but the work is done.
        """
        worker = self._worker
        result: T = await self._done(lambda: work(worker.connection))
        return result

    async def close(self) -> None:
        """Close the connection after the work that was handed in before. A second call does nothing."""
        if self._closed:
            return
        closing = self._hand_in(self._worker.close)
        self._closed = True
        self._worker.queue.put(END)
        await closing

    def check_open(self) -> None:
        """Raise `StoreError` once it is closed."""
        if self._closed:
            raise StoreError(f"{self._worker.name} is closed.")

    async def _done(self, work: Callable[[], Any]) -> Any:
        return await self._hand_in(work)

    def _hand_in(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        self.check_open()
        job = Job(work)
        future = job.make_future()
        self._worker.queue.put(job)
        return future


def in_thread(worker: Worker) -> Callable[[], None]:
    """Serve a worker in a thread of its own. Returns a function that ends the thread and waits for it."""
    thread = Thread(target=_serve, args=(worker,), name="turnwise-store", daemon=True)
    thread.start()
    return partial(_end, worker.queue, thread, os.getpid())


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


_serving: dict[Thread, WorkQueue] = {}
"""The threads that serve a worker now, each with the queue of its worker."""


def _serve(worker: Worker) -> None:
    _serving[current_thread()] = worker.queue
    try:
        worker.serve()
    finally:
        del _serving[current_thread()]


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_serving.clear)


@atexit.register
def _end_all() -> None:
    """Wait for all threads when the process ends, also for one that released the last reference to its connection
    itself: its finalizer has run then, and nobody else waits for it."""
    for thread, queue in list(_serving.items()):
        _end(queue, thread, os.getpid())


def _end(queue: WorkQueue, thread: Thread, process_id: int) -> None:
    """End the thread and wait for it: a process must not end in the middle of its work. In a forked child there is no
    such thread, and its connection is the parent's: SQLite must not even close it there."""
    if process_id != os.getpid():
        return
    queue.put(END)
    if thread is not current_thread():
        thread.join()
