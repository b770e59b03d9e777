"""Effects that are tried until their target has taken them, in order.

How long to wait before something that has failed is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turnwise.effects.retry_queues import PendingEffect, RetryQueues, wait_after
from turnwise.testing import ManualClock

from ..support.effect_contexts import NoReceipts
from ..support.engine_scenarios import Gate


class Target:
    """A target that takes effects, fails as often as it is told to, and knows what it took."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.taken: list[int] = []

    def attempt(self, effect_id: int) -> Callable[[], Awaitable[str | None]]:
        """Return what tries to send this effect here."""

        async def attempt() -> str | None:
            if self.failures:
                self.failures -= 1
                return "The target is down."
            self.taken.append(effect_id)
            return None

        return attempt


def pending(
    effect_id: int, attempt: Callable[[], Awaitable[str | None]], *, conversation_id: str = "a", target: str = "t"
) -> PendingEffect:
    """Return an effect on its way to a target."""
    return PendingEffect(conversation_id, effect_id, target, NoReceipts(), attempt)


async def test_an_effect_that_is_dropped_before_its_first_attempt_holds_nobody_up() -> None:
    """What a deleted conversation had to send is not waited for."""
    target, queues = Target(), RetryQueues(ManualClock())
    effect = pending(1, target.attempt(1))

    async with asyncio.timeout(60):
        queues.resume(effect)
        await queues.drop("a")
        await queues.wait_until_tried()
        await effect.tried.wait()

    assert target.taken == []


async def test_those_behind_one_that_failed_wait_and_keep_their_order() -> None:
    """First in, first out for each conversation and target; another target is not held up."""
    clock, target, other = ManualClock(), Target(failures=2), Target()
    queues = RetryQueues(clock)

    await queues.submit([pending(1, target.attempt(1)), pending(2, target.attempt(2))])
    await queues.submit([pending(3, target.attempt(3)), pending(4, other.attempt(4), target="u")])
    assert (target.taken, other.taken) == ([], [4])
    for wait in (1, 2):
        await clock.until_asleep()
        await clock.advance(wait)
    await queues.stop(timeout=60)

    assert target.taken == [1, 2, 3]


async def test_once_closed_nothing_is_tried() -> None:
    """It stays in the outbox; the caller goes on at once, also one that waited for an attempt under way."""
    gate, target, queues = Gate(), Target(), RetryQueues(ManualClock())

    async def hang() -> str | None:
        await gate()
        return None

    waiting = asyncio.ensure_future(queues.submit([pending(1, hang)]))
    await gate.arrived.wait()
    await queues.stop(timeout=0)
    await queues.submit([pending(2, target.attempt(2))])
    await waiting

    assert target.taken == []


async def test_what_another_engine_never_sends_holds_nothing_up_for_ever() -> None:
    """What is to be sent waits for two minutes in which the other engine makes no attempt, and only once."""

    async def earlier(conversation_id: str, effect_id: int, target: str) -> tuple[tuple[int, int], ...]:
        return ((1, 1),)

    clock, target = ManualClock(), Target()
    queues = RetryQueues(clock, earlier)

    await queues.submit([pending(2, target.attempt(2)), pending(3, target.attempt(3))])
    await clock.advance(119)
    assert target.taken == []
    await clock.advance(2)

    assert target.taken == [2, 3]


async def test_what_another_engine_has_left_goes_before_what_was_asked_for_later() -> None:
    """It is put into the queue in the order of the conversation."""
    is_left = True

    async def earlier(conversation_id: str, effect_id: int, target: str) -> tuple[tuple[int, int], ...]:
        return ((1, 1),) if is_left and effect_id > 1 else ()

    clock, target = ManualClock(), Target()
    queues = RetryQueues(clock, earlier)

    await queues.submit([pending(2, target.attempt(2))])
    queues.resume(pending(1, target.attempt(1)))
    is_left = False
    await clock.advance(1)

    assert target.taken == [1, 2]


@pytest.mark.parametrize(("failures", "wait"), [(1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (10**9, 60.0)])
def test_the_wait_is_doubled_up_to_the_longest_one(failures: int, wait: float) -> None:
    """Also after more failures than a power of two can hold."""
    assert wait_after(failures, 1.0, 60.0) == wait
