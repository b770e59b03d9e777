"""How long the timers of a conversation wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from turnwise.effects.clock import TimerPerformer
from turnwise.states.effects import StartTimer
from turnwise.testing import ManualClock

from ..support.effect_contexts import effect_context


@pytest.mark.parametrize(("longest", "waits"), [(30.0, 30.0), (20_000.0, 10_800.0), (None, 10_800.0)])
async def test_nothing_waits_until_a_clock_that_was_set_back_is_right_again(
    longest: float | None, waits: float
) -> None:
    """The moment was three hours ahead when the timer began: it waits no longer than agreed, if anything is."""
    clock = ManualClock()
    context = replace(effect_context("a"), longest_wait=longest)
    timer = StartTimer(effect_id=1, due=clock.now() + timedelta(hours=3), wakes="deadline_reached")

    waiting = asyncio.ensure_future(TimerPerformer(clock)(timer, context))
    await clock.until_asleep()
    await clock.advance(waits - 1)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()

    assert (await waiting).type == "deadline_reached"
