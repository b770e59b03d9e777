"""Coroutines that are started in the call that asks for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from turnwise.engine.mailbox import ImmediateStart

NUMBER: ContextVar[int] = ContextVar("number", default=0)


class TestACoroutineThatDoesNotWait:
    """It has ended when `start` returns."""

    async def test_takes_no_task(self) -> None:
        """Everything it does is done in the call."""
        done = []

        async def work() -> None:
            done.append(asyncio.current_task())

        ImmediateStart().start(work())

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

        done = []

        async def work() -> None:
            done.append(True)

        starter = ImmediateStart()

        with pytest.raises(KeyError):
            starter.start(fail())
        starter.start(work())

        assert done == [True]


class TestACoroutineThatWaits:
    """The callback of what it waits for continues it."""

    async def test_goes_on_outside_of_a_task_with_its_context_variables(self) -> None:
        """What it set before it waited can be reset behind it."""
        gate, ended = asyncio.Event(), asyncio.Event()
        seen: list[tuple[int, object]] = []

        async def work() -> None:
            token = NUMBER.set(1)
            await gate.wait()
            seen.append((NUMBER.get(), asyncio.current_task()))
            await asyncio.sleep(0)
            NUMBER.reset(token)
            ended.set()

        ImmediateStart().start(work())
        tasks = asyncio.all_tasks()
        gate.set()
        await ended.wait()

        assert (seen, NUMBER.get(), tasks) == ([(1, None)], 0, {asyncio.current_task()})

    async def test_gets_the_error_of_what_it_waits_for(self) -> None:
        """It is raised where the coroutine waits."""
        future = asyncio.get_running_loop().create_future()
        caught = []

        async def work() -> None:
            try:
                await future
            except KeyError as error:
                caught.append(error)

        ImmediateStart().start(work())
        future.set_exception(KeyError("no"))
        await asyncio.sleep(0)

        assert [error.args for error in caught] == [("no",)]

    async def test_has_its_error_reported_by_the_event_loop(self) -> None:
        """The next coroutine starts in the call, as if nothing had happened."""
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        error, done = KeyError("no"), []

        async def fail() -> None:
            await asyncio.sleep(0)
            raise error

        async def work() -> None:
            done.append(True)

        starter = ImmediateStart()
        starter.start(fail())
        await asyncio.sleep(0)
        starter.start(work())

        assert (reported, done) == ([error], [True])

    async def test_waits_for_a_task_for_which_others_wait_too(self) -> None:
        """Both get its result."""
        gate = asyncio.Event()
        shared = asyncio.ensure_future(gate.wait())
        results = []

        async def work() -> None:
            results.append(await shared)

        ImmediateStart().start(work())
        asyncio.get_running_loop().call_soon(gate.set)

        assert await shared
        assert results == [True]


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_is_started_by_another_begins_in_the_next_iteration(waits: bool) -> None:
    """Otherwise conversations that answer each other at once would nest without bound, also behind a wait."""
    starter, depth, deepest, ended = ImmediateStart(), 0, 0, asyncio.Event()

    async def work(number: int) -> None:
        nonlocal depth, deepest
        if waits:
            await asyncio.sleep(0)
        depth += 1
        deepest = max(deepest, depth)
        if number:
            starter.start(work(number - 1))
        else:
            ended.set()
        depth -= 1

    starter.start(work(1_000))
    await ended.wait()

    assert deepest == 1
