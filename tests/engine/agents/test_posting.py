"""What agents hand over to each other is posted until its target has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.effects.retry_queues import RetryQueues
from turnwise.engine.agents import mail
from turnwise.engine.agents.mail import Posting
from turnwise.states import AnswerSubAgent, Refused
from turnwise.testing import ManualClock

from ...support.effect_contexts import NoReceipts, effect_context
from ...support.engine_scenarios import Gate

ANSWER = AnswerSubAgent(effect_id=7, child=3, call_id="call_1_0")


class Kept(NoReceipts):
    """Receipts that know what has arrived."""

    def __init__(self) -> None:
        self.arrived: list[int] = []

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Note what has arrived."""
        self.arrived.append(effect_id)


async def test_a_target_that_takes_long_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender goes on after a bounded time, and the attempt under way is not cancelled: it arrives once."""
    monkeypatch.setattr(mail, "ATTEMPT_TIMEOUT", 0.01)
    queues, gate, receipts, posts = RetryQueues(ManualClock()), Gate(), Kept(), []

    async def post() -> None:
        posts.append(ANSWER)
        await gate.opened.wait()

    await Posting(queues).submit(ANSWER, replace(effect_context("a"), receipts=receipts), "target", post)
    assert receipts.arrived == []
    gate.opened.set()
    await queues.wait_until_tried()

    assert (receipts.arrived, posts) == ([7], [ANSWER])


@pytest.mark.parametrize("error", [Refused("busy"), RuntimeError("secret")])
async def test_an_attempt_that_fails_is_made_again(error: Exception) -> None:
    """Whatever went wrong, also in the program itself, the next attempt may succeed."""
    clock, receipts, errors = ManualClock(), Kept(), [error]
    queues = RetryQueues(clock)

    async def post() -> None:
        if errors:
            raise errors.pop()

    await Posting(queues).submit(ANSWER, replace(effect_context("a"), receipts=receipts), "target", post)
    assert receipts.arrived == []
    await clock.advance(60)

    assert receipts.arrived == [7]
