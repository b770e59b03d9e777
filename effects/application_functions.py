"""Calls functions of the application so that they can neither block nor break the engine.

Such a function may raise, hang or refuse to stop. So it runs in a task of its own, which can be abandoned. A plain
function also runs in a thread of its own: in a shared pool a function that hangs would keep others from running, and a
thread that is not a daemon would keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Returned:
    """The function returned this value."""

    value: object


@dataclass(frozen=True)
class Raised:
    """The function raised this error."""

    error: BaseException


Outcome = Returned | Raised


def innermost(function: Any) -> Any:
    """What a partial, or a partial of a partial, calls in the end. `Pure.`"""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_coroutine_function(function: object) -> bool:
    """Whether calling this makes a coroutine. `Pure.`"""
    called = innermost(function)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


async def call_within(seconds: float, name: str, function: Callable[..., object], *arguments: object) -> Outcome | None:
    """Call the function, and return how the call ended; None if it did not end within so many seconds.

    A coroutine that did not end is cancelled and a thread is abandoned; neither is waited for. `name` becomes the name
    of the thread. Raises only CancelledError, when the caller's task is cancelled.
    """
    call = functools.partial(function, *arguments)
    task = asyncio.create_task(attempt(name, call, is_coroutine=is_coroutine_function(function)))
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        return None
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


async def attempt(name: str, call: Callable[[], object], *, is_coroutine: bool) -> Outcome:
    """Make the call, which makes a coroutine or runs in a thread of this name. Whatever it raises is caught: it must
    not end the event loop."""
    try:
        if is_coroutine:
            coroutine: Any = call()
            return Returned(await coroutine)
        outcome = await _call_in_thread(name, call)
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return Returned(await outcome.value)
    except BaseException as error:
        pass_on_interrupt(error)
        return Raised(error)
    return outcome


def pass_on_interrupt(error: BaseException) -> None:
    """Have Ctrl-C end the program although it came while code of the application ran, whose errors are caught.

    `asyncio.run` handles Ctrl-C itself. Under `run_until_complete` Python raises KeyboardInterrupt in whatever runs at
    that moment. It is raised again behind the current step of the event loop, so that what was under way is whole.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if type(error) is KeyboardInterrupt and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        asyncio.get_running_loop().call_soon(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt


async def _call_in_thread(name: str, call: Callable[[], object]) -> Outcome:
    """Make the call in a new daemon thread, with the context variables of the caller."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        outcome = variables.run(_call, call)
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def _call(call: Callable[[], object]) -> Outcome:
    try:
        return Returned(call())
    except BaseException as error:
        return Raised(error)
