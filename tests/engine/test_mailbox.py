"""The door to a conversation: one event at a time, in the call that puts it in where nothing is in hand, by coroutines
that are started in the call that asks for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

import pytest

from turnwise.engine.mailbox import BURST, Mailbox
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

    return Mailbox(taken)


class Gate:
    """Handles no event before it is opened. `taken` has the events that were handled."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.taken: list[Event | None] = []

    async def take(self, event: Event | None) -> None:
        """Handle an event."""
        await self.opened.wait()
        self.taken.append(event)


class TestWhereNothingIsInHand:
    """An event is handled at once."""

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
        assert sorted(set(others)) == list(range(0, 1_000, BURST))


async def test_a_closed_mailbox_has_finished_what_was_in_hand() -> None:
    """Closing waits for it."""
    gate = Gate()
    box = mailbox(gate.take)
    box.post(answer(1))
    asyncio.get_running_loop().call_soon(gate.opened.set)
    box.shut(Refused("closed"))
    await box.finish()

    assert gate.taken == [answer(1)]


async def test_of_several_that_close_a_mailbox_one_may_be_cancelled() -> None:
    """The others still wait until what was in hand is finished."""
    gate = Gate()
    box = mailbox(gate.take)
    box.post(answer(1))
    box.shut(Refused("closed"))
    closing = [asyncio.ensure_future(box.finish()) for _ in range(3)]
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
    await box.finish()
    await box.finish()

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
    closing = asyncio.ensure_future(box.finish(answers=fails))
    await asyncio.sleep(0)
    opened.set()

    async with asyncio.timeout(5):
        await closing
        await waiting
