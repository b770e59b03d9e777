"""A wait that is bounded by iterations of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from turnwise.engine.conversation import iterations_until_done


class Work:
    """Takes so many iterations of the event loop, and notes how it ended."""

    def __init__(self, iterations: int) -> None:
        self.left = iterations
        self.was_cancelled = False

    async def __call__(self) -> None:
        """Work."""
        try:
            while self.left:
                await asyncio.sleep(0)
                self.left -= 1
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_it_returns_as_soon_as_the_work_is_done() -> None:
    """Work that ends within the bound is done, however large the bound is."""
    work = Work(3)

    await iterations_until_done(work(), 1_000_000)

    assert (work.left, work.was_cancelled) == (0, False)


async def test_work_that_takes_longer_is_cancelled() -> None:
    """And is not waited for, also if it never ends by itself."""
    work = Work(1_000_000)

    await iterations_until_done(work(), 5)
    await asyncio.sleep(0)

    assert work.was_cancelled


async def test_an_error_of_the_work_is_raised() -> None:
    """Its caller decides what becomes of it."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("no such work")

    with pytest.raises(LookupError, match="no such work"):
        await iterations_until_done(fail(), 5)


async def test_a_caller_that_is_cancelled_cancels_the_work() -> None:
    """Nothing goes on that nobody waits for."""
    work = Work(1_000_000)
    caller = asyncio.ensure_future(iterations_until_done(work(), 1_000_000))
    for _ in range(3):
        await asyncio.sleep(0)

    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)

    assert work.was_cancelled
