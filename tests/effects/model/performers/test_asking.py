"""What every request to a model has in common, whichever effect it belongs to: it is asked in one way, and its work has
one limit of time, however many pieces it has.
"""

from __future__ import annotations

import asyncio

import pytest

from turnwise.effects.model.performers.asking import MAX_CALLS, ModelCaller, TimeLimit
from turnwise.effects.model.port import LlmFailure, ModelRequest
from turnwise.testing import FunctionLlm, call, calls

from ....simulation.environment import RandomSource, VirtualLoop


async def asked(count: int) -> int:
    """How many calls an answer with so many calls has."""
    model = FunctionLlm(lambda request: calls(*[call("find")] * count))
    answer = await ModelCaller(lambda name: model, silence=60).ask(ModelRequest(model="any", messages=()))
    return len(answer.tool_calls)


LIMIT = 0.01


async def hang() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


async def limited(limit: TimeLimit) -> str:
    """Hang within the limit, and say how that ended."""
    try:
        with limit.apply():
            await hang()
    except TimeoutError:
        return "out of time"
    return "ended"


class TestCalls:
    """An answer comes from outside, and may hold anything."""

    async def test_as_many_as_a_round_can_bear_are_taken(self) -> None:
        """All of them."""
        assert await asked(MAX_CALLS) == MAX_CALLS

    async def test_more_are_a_malformed_answer(self) -> None:
        """Each step of such a round would store all of them: 10,000 calls would take minutes."""
        with pytest.raises(LlmFailure) as failed:
            await asked(MAX_CALLS + 1)

        assert failed.value.kind == "malformed_response"


class TestWorkThatTakesTooLong:
    """It is cancelled, and raises `TimeoutError`."""

    async def test_each_of_several_ends(self) -> None:
        """Also one that begins later than the others; nothing is left behind in their tasks."""
        limit = TimeLimit(LIMIT)

        async def later() -> str:
            await asyncio.sleep(LIMIT / 2)
            return await limited(limit)

        assert set(await asyncio.gather(limited(limit), limited(limit), later())) == {"out of time"}
        assert await limited(limit) == "out of time"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    async def test_the_oldest_may_have_ended_by_itself(self) -> None:
        """The time of the one behind it runs on."""
        limit = TimeLimit(LIMIT)
        second = asyncio.ensure_future(limited(limit))

        with limit.apply():
            await asyncio.sleep(0)

        assert await second == "out of time"

    async def test_work_within_other_work_ends_by_its_own_limit(self) -> None:
        """The outer one goes on."""
        with TimeLimit(60).apply():
            assert await limited(TimeLimit(LIMIT)) == "out of time"

    async def test_an_error_that_it_raises_when_it_is_cancelled_is_kept(self) -> None:
        """As `asyncio.timeout` does."""
        with pytest.raises(KeyError), TimeLimit(LIMIT).apply():
            try:
                await hang()
            finally:
                raise KeyError("no")


class TestWorkThatGoesOn:
    """It says so, and its time is counted from then on."""

    async def test_it_may_take_longer_than_the_limit(self) -> None:
        """As long as each of its pauses is shorter."""
        limit = TimeLimit(LIMIT * 3)

        with limit.apply() as work:
            for _ in range(6):
                await asyncio.sleep(LIMIT)
                work.restart()

    def test_it_runs_out_after_the_last_piece(self) -> None:
        """And those that have the same limit run out in the order of their last pieces."""
        limit, ended = TimeLimit(LIMIT), list[int]()

        async def hang_after(pieces: int) -> None:
            with pytest.raises(TimeoutError), limit.apply() as work:
                for _ in range(pieces):
                    await asyncio.sleep(LIMIT / 3)
                    work.restart()
                await hang()
            ended.append(pieces)

        async def hang_at_once() -> None:
            await asyncio.gather(hang_after(6), hang_after(0), hang_after(3))

        VirtualLoop(RandomSource(0)).run(hang_at_once(), bound=100 * LIMIT)

        assert ended == [0, 3, 6]

    async def test_a_piece_that_comes_too_late_changes_nothing(self) -> None:
        """The time is over."""
        with pytest.raises(TimeoutError), TimeLimit(LIMIT).apply() as work:
            try:
                await hang()
            finally:
                work.restart()


class TestACancelFromElsewhere:
    """It stays a cancel."""

    async def test_before_the_time_has_run_out(self) -> None:
        """Nothing raises `TimeoutError`."""
        task = asyncio.ensure_future(limited(TimeLimit(60)))
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_in_the_moment_in_which_the_time_runs_out(self) -> None:
        """The caller that cancels the task is not told that it ended in time."""
        limit = TimeLimit(0)
        task = asyncio.ensure_future(limited(limit))
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1


async def test_there_is_no_timer_without_work() -> None:
    """One while something runs, however much, and none when all of it has ended."""
    loop, limit = asyncio.get_running_loop(), TimeLimit(60)
    timers: list[asyncio.TimerHandle] = []
    call_at = loop.call_at

    def counted(*args: object, **kwargs: object) -> asyncio.TimerHandle:
        timers.append(call_at(*args, **kwargs))  # type: ignore[arg-type]
        return timers[-1]

    loop.call_at = counted  # type: ignore[method-assign]
    tasks = [asyncio.ensure_future(limited(limit)) for _ in range(10)]
    await asyncio.sleep(0)
    assert [timer.cancelled() for timer in timers] == [False]

    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert [timer.cancelled() for timer in timers] == [True]
