"""Calls a function of somebody else's, and tells how that ended.

A tool is foreign code: it may raise, hang or refuse to stop. So it runs in a task of its own, which can be left behind.
A plain function runs in a thread of its own besides: in a shared pool one that hangs would take the place of others,
and a thread that is no daemon would keep the process from ending.
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

from .tool import AnyTool

GRACE = 1.0
"""How long, in seconds, a coroutine that was told to stop may clean up before it is left behind. Ours."""


@dataclass(frozen=True)
class Returned:
    """It ended well, with this."""

    value: object


@dataclass(frozen=True)
class Raised:
    """It ended with this error."""

    error: BaseException


Ending = Returned | Raised


async def ending_of(tool: AnyTool, arguments: dict[str, object]) -> Ending | None:
    """How a call of the tool's function ends; None if it does not within the tool's timeout.

    Takes no longer than that and `GRACE`. Raises nothing but CancelledError, when the caller's task is cancelled: a
    coroutine is then told to stop and awaited for `GRACE`, a thread is left to itself. One that returns all the same
    has truly finished, and this is how it ended.
    """
    return await _within(tool.timeout, _attempt(tool, arguments))


async def _within(seconds: float, attempt: Coroutine[object, object, Ending]) -> Ending | None:
    """How the attempt ended, or None if it did not in time."""
    task = asyncio.create_task(attempt)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return _ending(task)
        await _stop(task)
        return None
    except asyncio.CancelledError:
        await _stop(task)
        if task.done() and isinstance(ending := _ending(task), Returned):
            return ending
        raise


async def _stop(task: asyncio.Task[Ending]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)


def _ending(task: asyncio.Task[Ending]) -> Ending:
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


async def _attempt(tool: AnyTool, arguments: dict[str, object]) -> Ending:
    """Call the function and see how it ends. Whatever it raises is caught: it must not end the engine's loop."""
    try:
        called = partial(tool.function, **arguments)
        if inspect.iscoroutinefunction(tool.function):
            return Returned(await called())
        ending = await _in_thread(tool.name, called)
        if isinstance(ending, Returned) and inspect.isawaitable(ending.value):
            return Returned(await ending.value)
    except BaseException as error:
        return Raised(error)
    return ending


async def _in_thread(name: str, called: Callable[[], object]) -> Ending:
    """Call it in a fresh daemon thread, with the context variables of here."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[Ending] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(how: Ending) -> None:
        if not ending.done():
            ending.set_result(how)

    def work() -> None:
        how = variables.run(_ending_in_thread, called)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, how)

    threading.Thread(target=work, name=f"tool {name}", daemon=True).start()
    return await ending


def _ending_in_thread(called: Callable[[], object]) -> Ending:
    try:
        return Returned(called())
    except BaseException as error:
        return Raised(error)
