"""Coroutines that are started in the call that asks for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from turnwise.engine.intake.immediate_start import ImmediateStart

NUMBER: ContextVar[int] = ContextVar("number", default=0)


class TestACoroutineThatDoesNotWait:
    """It has ended when `start` returns."""

    async def test_takes_no_task(self) -> None:
        """Everything it does is done in the call."""
        done = []

        async def work() -> None:
            done.append(asyncio.current_task())

        assert ImmediateStart().start(work()) is None
        assert done == [asyncio.current_task()]

    async def test_leaves_the_context_variables_of_its_caller(self) -> None:
        """It runs in a copy of them, as a task does."""

        async def work() -> None:
            NUMBER.set(1)

        ImmediateStart().start(work())

        assert NUMBER.get() == 0

    async def test_raises_its_error_in_the_call(self) -> None:
        """The next coroutine starts as if nothing had happened."""

        async def fail() -> None:
            raise KeyError("no")

        async def work() -> None:
            return

        starter = ImmediateStart()

        with pytest.raises(KeyError):
            starter.start(fail())
        assert starter.start(work()) is None


class TestACoroutineThatWaits:
    """A task goes on with it."""

    async def test_goes_on_in_a_task_of_its_own_with_its_context_variables(self) -> None:
        """What it set before it waited can be reset behind it."""
        gate = asyncio.Event()
        seen: list[tuple[int, object]] = []

        async def work() -> None:
            token = NUMBER.set(1)
            await gate.wait()
            seen.append((NUMBER.get(), asyncio.current_task()))
            await asyncio.sleep(0)
            NUMBER.reset(token)

        task = ImmediateStart().start(work())
        assert task is not None
        gate.set()
        await task

        assert (seen, NUMBER.get()) == ([(1, task)], 0)

    async def test_raises_its_error_in_the_task(self) -> None:
        """So does the error of what it waits for."""
        future = asyncio.get_running_loop().create_future()

        async def work() -> None:
            await future

        task = ImmediateStart().start(work())
        assert task is not None
        future.set_exception(KeyError("no"))

        with pytest.raises(KeyError):
            await task

    @pytest.mark.parametrize("has_begun", [False, True])
    async def test_is_cancelled_where_it_waits(self, has_begun: bool) -> None:
        """Also before its task has had its first turn: the coroutine has begun then, so it gets to clean up."""
        cleaned = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(True)

        task = ImmediateStart().start(work())
        assert task is not None
        if has_begun:
            await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True]


async def test_one_that_is_started_by_another_gets_a_task() -> None:
    """Otherwise conversations that answer each other at once would nest without bound: here a task and one within."""
    starter, depth, deepest, ended = ImmediateStart(), 0, 0, asyncio.Event()

    async def work(number: int) -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        if number:
            starter.start(work(number - 1))
        else:
            ended.set()
        depth -= 1

    starter.start(work(1_000))
    await ended.wait()

    assert deepest == 2
