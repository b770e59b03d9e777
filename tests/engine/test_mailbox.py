"""The door to a conversation: one event at a time, in the call that puts it in where nothing is in hand, by coroutines
that are started in the call that asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar

import pytest

from turnwise.engine.mailbox import BURST, ImmediateStart, Mailbox
from turnwise.engine.requests import Filled, Outcome
from turnwise.persistence import StorageFailed
from turnwise.states import Event, Idle, LlmFailed, Refused, Step, UserMessage
from turnwise.testing.doubles import NOON

MESSAGE = UserMessage(event_id="m", at=NOON, text="Hi")
NOTHING = Outcome(Step(Idle(), ignored=True))


def answer(number: int) -> LlmFailed:
    """The answer to the effect of this number."""
    return LlmFailed(effect_id=number, at=NOON, kind="timeout", sentence="Too late.")


def mailbox(take: Callable[[Event | None], Awaitable[None]]) -> Mailbox:
    """A mailbox whose events this function handles."""

    async def taken(event: Event | None, filled: Filled, variables: Context) -> Outcome:
        await take(event)
        return NOTHING

    return Mailbox(taken, ImmediateStart().start)


class Gate:
    """Handles no event before it is opened. `taken` has the events that were handled."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.taken: list[Event | None] = []

    async def take(self, event: Event | None) -> None:
        """Handle an event."""
        await self.opened.wait()
        self.taken.append(event)


NUMBER: ContextVar[int] = ContextVar("number", default=0)


class TestWhereNothingIsInHand:
    """An event is handled in the call that puts it in."""

    async def test_an_answer_is_handled_when_post_returns(self) -> None:
        """No iteration of the event loop is needed."""
        taken: list[Event | None] = []

        async def take(event: Event | None) -> None:
            taken.append(event)

        mailbox(take).post(answer(1))

        assert taken == [answer(1)]

    async def test_a_request_that_fails_raises_in_the_call(self) -> None:
        """The next one is handled."""
        taken: list[Event | None] = []

        async def take(event: Event | None) -> None:
            taken.append(event)
            if len(taken) == 1:
                raise Refused("busy")

        box = mailbox(take)

        with pytest.raises(Refused):
            await box.request(MESSAGE)
        assert await box.request(MESSAGE) is NOTHING


class TestWhileAnEventIsInHand:
    """Others wait for their turn."""

    async def test_events_are_handled_in_their_order(self) -> None:
        """Requests and answers alike."""
        gate = Gate()
        box = mailbox(gate.take)
        box.post(answer(1))
        asking = asyncio.ensure_future(box.request(MESSAGE))
        await asyncio.sleep(0)
        box.post(answer(2))
        gate.opened.set()
        await asking
        await box.handled()

        assert gate.taken == [answer(1), MESSAGE, answer(2)]

    async def test_a_request_is_handled_although_its_caller_is_cancelled(self) -> None:
        """One in hand, and one that waits behind it."""
        gate = Gate()
        box = mailbox(gate.take)
        callers = [asyncio.ensure_future(box.request(MESSAGE)) for _ in range(2)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        gate.opened.set()
        await box.handled()

        assert gate.taken == [MESSAGE, MESSAGE]

    async def test_a_thousand_immediate_answers_neither_nest_nor_hold_up_the_event_loop(self) -> None:
        """Each is put in while the one before it is being handled. Other work goes on after every `BURST` of them."""
        depth, deepest = 0, 0
        others: list[int] = []
        handled = 0

        async def take(event: Event | None) -> None:
            nonlocal depth, deepest, handled
            depth, handled = depth + 1, handled + 1
            deepest = max(deepest, depth)
            if handled < 1_000:
                box.post(answer(handled))
            depth -= 1

        async def other_work() -> None:
            while handled < 1_000:
                others.append(handled)
                await asyncio.sleep(0)

        box = mailbox(take)
        other = asyncio.ensure_future(other_work())
        box.post(answer(0))
        await other

        assert (handled, deepest) == (1_000, 1)
        assert sorted(set(others)) == list(range(BURST, 1_000, BURST))


async def test_a_closed_mailbox_has_finished_what_was_in_hand() -> None:
    """Closing waits for it."""
    gate = Gate()
    box = mailbox(gate.take)
    box.post(answer(1))
    asyncio.get_running_loop().call_soon(gate.opened.set)
    box.shut(Refused("closed"))
    await box.close()

    assert gate.taken == [answer(1)]


async def test_of_several_that_close_a_mailbox_one_may_be_cancelled() -> None:
    """The others still wait until what was in hand is finished."""
    gate = Gate()
    box = mailbox(gate.take)
    box.post(answer(1))
    box.shut(Refused("closed"))
    closing = [asyncio.ensure_future(box.close()) for _ in range(3)]
    await asyncio.sleep(0)
    closing[0].cancel()
    asyncio.get_running_loop().call_soon(gate.opened.set)
    await asyncio.gather(*closing[1:])

    assert gate.taken == [answer(1)]
    assert closing[0].cancelled()


async def test_a_closed_mailbox_does_not_try_an_answer_again_that_the_store_has_refused() -> None:
    """It is closed at once, although the next attempt is due later."""
    attempts: list[Event | None] = []

    async def take(event: Event | None) -> None:
        attempts.append(event)
        raise StorageFailed("The disk is full.")

    box = mailbox(take)
    box.post(answer(1))
    box.shut(Refused("closed"))
    await box.close()
    await box.close()

    assert attempts == [answer(1)]


@pytest.mark.parametrize("fails", [False, True])
async def test_who_waits_for_what_a_closed_mailbox_drops_is_released(fails: bool) -> None:
    """Also a caller that began to wait after the mailbox was shut: what is dropped is never handled."""
    opened = asyncio.Event()

    async def take(event: Event | None) -> None:
        await opened.wait()
        if fails:
            raise StorageFailed("The disk is full.")

    box = mailbox(take)
    box.post(answer(1))
    box.shut(Refused("closed"))
    waiting = asyncio.ensure_future(box.handled())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(box.close(answers=fails))
    await asyncio.sleep(0)
    opened.set()

    async with asyncio.timeout(5):
        await closing
        await waiting


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
