"""Runs coroutines without tasks: in the call that starts them, and behind each wait in the callback of its future.

A task begins in the next iteration of the event loop, and costs several times as much as the callback that continues a
coroutine. The handling of an event mostly waits for one thing, its commit, and often not even for that. `asyncio` of
Python 3.12 has eager tasks, which save the iteration and not the task.

Such a coroutine runs in the task of its caller, or in none. So it must not use the current task, as a timeout does, and
nobody can cancel it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any


class ImmediateStart:
    """Starts the coroutines of one event loop. One that is started while another one runs begins in the next iteration,
    so that conversations which answer each other at once do not nest."""

    __slots__ = ("is_running",)

    def __init__(self) -> None:
        self.is_running = False
        """Whether a coroutine runs at this moment."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine until its first wait, in a copy of the current context variables. Raises what it raises
        until then; what it raises later goes to the exception handler of the event loop."""
        continuation = _Continuation(self, coroutine)
        if self.is_running:
            asyncio.get_running_loop().call_soon(continuation, context=continuation.context)
        else:
            continuation.context.run(continuation)


class _Continuation:
    """Each call runs the coroutine to its next wait, and the future that it waits for calls this again. One object for
    each coroutine, because the garbage collector walks what waits."""

    __slots__ = ("_coroutine", "_starter", "context")

    def __init__(self, starter: ImmediateStart, coroutine: Coroutine[Any, Any, None]) -> None:
        self._starter = starter
        self._coroutine = coroutine
        self.context = copy_context()

    def __call__(self, _: object = None) -> None:
        self._starter.is_running = True
        try:
            awaited = self._coroutine.send(None)
        except StopIteration:
            return
        finally:
            self._starter.is_running = False
        if awaited is None:  # it lets other work go on, as `asyncio.sleep(0)` does
            asyncio.get_running_loop().call_soon(self, context=self.context)
        else:
            awaited._asyncio_future_blocking = False  # as a task does: the future may be awaited elsewhere, too
            awaited.add_done_callback(self, context=self.context)
