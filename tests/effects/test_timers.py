"""How long the timers of a conversation wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from turnwise import Policy, Retry
from turnwise.effects.timers import TimerPerformer
from turnwise.states import Context
from turnwise.states.effects import StartTimer
from turnwise.testing import ManualClock

from ..support.effect_contexts import effect_context


@pytest.mark.parametrize(("wakes", "waits"), [("retry_due", 30.0), ("deadline_reached", 10_800.0)])
async def test_a_retry_does_not_wait_until_a_clock_that_was_set_back_is_right_again(
    wakes: Literal["retry_due", "deadline_reached"], waits: float
) -> None:
    """The moment was three hours ahead when the timer began: no retry waits so long, but a deadline may."""
    clock = ManualClock()
    context = effect_context("a", context=Context(policy=Policy(retry=Retry(cap=30))))
    timer = StartTimer(effect_id=1, due=clock.now() + timedelta(hours=3), wakes=wakes)

    waiting = asyncio.ensure_future(TimerPerformer(clock)(timer, context))
    await clock.until_asleep()
    await clock.advance(waits - 1)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()

    assert (await waiting).type == wakes
