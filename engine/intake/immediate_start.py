"""Starts coroutines in the call that asks for it, and gives a task only to those that have to wait.

A task begins in the next iteration of the event loop. A step that is committed at once needs neither the task nor the
iteration, so its coroutine is run by hand until it ends or waits for something. `asyncio` of Python 3.12 has eager
tasks for this; here the coroutine goes on in an ordinary task behind its first wait.

What runs by hand runs in the task of its caller, or in none. So it must not use the current task, as a timeout does,
before its first wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any


class ImmediateStart:
    """Starts the coroutines of one event loop, one at a time: one that is started while another one runs by hand gets a
    task, so that conversations which answer each other at once do not nest."""

    def __init__(self) -> None:
        self._is_running = False

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run the coroutine until its first wait, in a copy of the current context variables. Returns the task that
        goes on with it, or None if it has ended. Raises what it raises until then."""
        if self._is_running:
            return asyncio.ensure_future(coroutine)
        context = copy_context()
        self._is_running = True
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration:
            return None
        finally:
            self._is_running = False
        return asyncio.get_running_loop().create_task(_Begun(coroutine, awaited), context=context)


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine that has begun, and waits for the future `awaited`."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._was_passed_on = False

    def send(self, value: Any) -> Any:
        """Continue the coroutine, as an event loop does. The first call returns the future that it waits for."""
        if self._was_passed_on:
            return self._coroutine.send(value)
        self._was_passed_on = True
        return self._awaited

    def throw(self, *error: Any) -> Any:
        """Raise the error where the coroutine waits."""
        self._was_passed_on = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("only a task goes on with it")
