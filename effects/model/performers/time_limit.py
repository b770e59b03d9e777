"""Limits how long each of many pieces of work may take, where the limit is the same for all.

`asyncio.timeout` sets a timer for each of them. Those that have the same limit run out of time in the order in which
they began, so one timer is enough: for the one that began first. Work that shows that it goes on begins again, at the
end of this order, so a limit of silence costs as little as one of the whole.
"""

from __future__ import annotations

import asyncio


class TimeLimit:
    """The limit of `seconds`, and the work that it applies to at the moment, oldest first."""

    __slots__ = ("_running", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[LimitedWork, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def apply(self) -> LimitedWork:
        """Return a context for the current task. It raises `TimeoutError` if it takes longer than the limit; what the
        task waits for is cancelled then."""
        return LimitedWork(self)

    def add(self, work: LimitedWork) -> None:
        """Note that this work has begun."""
        self._running[work] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(work.due, self._expire)

    def remove(self, work: LimitedWork) -> None:
        """Note that this work has ended. Without work there is no timer."""
        self._running.pop(work, None)
        if not self._running and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def restart(self, work: LimitedWork) -> None:
        """Note that this work has begun again. The timer stays as it is; when it fires it is set for what is next."""
        del self._running[work]
        work.due = asyncio.get_running_loop().time() + self.seconds
        self._running[work] = None

    def _expire(self) -> None:
        """Cancel the work whose time has run out, and set the timer for the one that is next."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._running:
            oldest = next(iter(self._running))
            if oldest.due > loop.time():
                self._timer = loop.call_at(oldest.due, self._expire)
                return
            del self._running[oldest]
            oldest.cancel()


class LimitedWork:
    """What the current task does in this context, until `due` on the clock of its event loop. It ends like
    `asyncio.timeout`: a cancel from elsewhere is never taken for the end of the time."""

    __slots__ = ("_cancels", "_is_expired", "_limit", "_task", "due")

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit
        self._is_expired = False

    def __enter__(self) -> LimitedWork:
        task = asyncio.current_task()
        assert task is not None, "only the work of a task can be cancelled"
        self._task = task
        self._cancels = task.cancelling()
        self.due = asyncio.get_running_loop().time() + self._limit.seconds
        self._limit.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._limit.remove(self)
        if self._is_expired and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def restart(self) -> None:
        """Count its time from now on, because it goes on. Nothing happens if it has run out."""
        if not self._is_expired:
            self._limit.restart(self)

    def cancel(self) -> None:
        """Cancel the task, because its time has run out."""
        self._is_expired = True
        self._task.cancel()
