"""Functions of an application are called so that they can neither block nor break the engine."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from turnwise.effects.application_functions import Outcome, Raised, Returned, call_within


async def call(function: object, *arguments: object, seconds: float = 5.0) -> Outcome | None:
    """Call the function as a part of the engine does."""
    return await call_within(seconds, "a test", function, *arguments)  # type: ignore[arg-type]


async def doubled(number: int) -> int:
    """A coroutine function."""
    return 2 * number


class Doubling:
    """An object that is called, whose call is a coroutine."""

    async def __call__(self, number: int) -> int:
        """Return the double."""
        return 2 * number


@pytest.mark.parametrize(
    "function",
    [doubled, functools.partial(doubled, 4), Doubling(), lambda *numbers: 8, lambda *numbers: doubled(4)],
    ids=["coroutine", "partial", "object", "plain", "returns a coroutine"],
)
async def test_every_kind_of_function_is_called(function: object) -> None:
    """Coroutine functions, plain functions, and plain functions that return a coroutine."""
    arguments = () if isinstance(function, functools.partial) else (4,)

    assert await call(function, *arguments) == Returned(8)


async def test_a_plain_function_runs_in_a_daemon_thread() -> None:
    """It can neither block the event loop nor keep the process from ending."""
    outcome = await call(lambda: (threading.current_thread().daemon, threading.current_thread().name))

    assert outcome == Returned((True, "a test"))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_it_raises_is_returned(error: BaseException) -> None:
    """Also what would end the event loop or look like a cancel of the caller."""

    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    outcomes = [await call(fail), await call(fail_later)]

    assert [type(outcome.error) for outcome in outcomes if isinstance(outcome, Raised)] == [type(error)] * 2


async def test_a_function_that_hangs_is_left_behind() -> None:
    """A thread as well as a coroutine, also one that refuses to stop."""
    released = threading.Event()
    stopped = asyncio.Event()

    async def refuse() -> None:
        while not stopped.is_set():
            try:
                await stopped.wait()
            except asyncio.CancelledError:
                continue

    outcomes = [await call(function, seconds=0.01) for function in (released.wait, refuse, asyncio.Event().wait)]
    released.set()
    stopped.set()

    assert outcomes == [None, None, None]


async def test_a_cancel_of_the_caller_cancels_the_function() -> None:
    """The caller does not wait for it."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(call(wait))
    await began.wait()
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    await ended.wait()
