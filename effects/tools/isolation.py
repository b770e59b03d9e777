"""Calls a function of the application so that it can neither block nor break the engine.

The function may raise, hang or refuse to stop. So it runs in a task of its own, which can be abandoned. A plain
function also runs in a thread of its own: in a shared pool a function that hangs would keep others from running, and a
thread that is not a daemon would keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial

from .arguments.callables import is_coroutine_function
from .tool import AnyTool

GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is abandoned. Chosen to be longer than an ordinary
clean-up, and short enough for a user who waits."""


@dataclass(frozen=True)
class Returned:
    """The function returned this value."""

    value: object


@dataclass(frozen=True)
class Raised:
    """The function raised this error."""

    error: BaseException


Outcome = Returned | Raised


async def call_function(tool: AnyTool, arguments: dict[str, object]) -> Outcome | None:
    """Call the tool's function, and return how the call ended; None if it did not end within the tool's timeout.

    Takes at most that timeout and `GRACE`. Raises only CancelledError, when the caller's task is cancelled: a coroutine
    is then cancelled and awaited for `GRACE`, a thread is abandoned. If a coroutine returns all the same, its outcome
    is returned and the cancel has no effect.
    """
    return await _wait(tool.timeout, _attempt(tool, arguments))


async def _wait(seconds: float, attempt: Coroutine[object, object, Outcome]) -> Outcome | None:
    """The outcome of the attempt, or None if it did not end in time."""
    task = asyncio.create_task(attempt)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return _outcome(task)
        await _stop(task)
        return None
    except asyncio.CancelledError:
        await _stop(task)
        if task.done() and isinstance(outcome := _outcome(task), Returned):
            return outcome
        raise


async def _stop(task: asyncio.Task[Outcome]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)


def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


async def _attempt(tool: AnyTool, arguments: dict[str, object]) -> Outcome:
    """Call the function. Whatever it raises is caught: it must not end the event loop."""
    try:
        call = partial(tool.function, **arguments)
        if is_coroutine_function(tool.function):
            return Returned(await call())
        outcome = await _call_in_thread(tool.name, call)
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return Returned(await outcome.value)
    except BaseException as error:
        return Raised(error)
    return outcome


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

    threading.Thread(target=work, name=f"tool {name}", daemon=True).start()
    return await future


def _call(call: Callable[[], object]) -> Outcome:
    try:
        return Returned(call())
    except BaseException as error:
        return Raised(error)
