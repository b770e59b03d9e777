"""A clock on the wall that is set, by an hour, either way, while timers run.

Within a process waits are measured on a clock that nobody sets; across processes a deadline is a moment,
and holds, unless it lies further ahead than was agreed: see `test_clocks_set_right`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from turnwise import Engine, Policy
from turnwise.effects import clock as clocks
from turnwise.effects.clock import SystemClock
from turnwise.persistence.maintenance.doctor import examine
from turnwise.states.policy import Questions, Retry
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing.doubles import failure

from ..support.engine_scenarios import QUESTION, until

pytestmark = pytest.mark.faults

HOUR = timedelta(hours=1)
JUMPS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])

SetBy = Callable[[timedelta], None]


@pytest.fixture
def set_by(monkeypatch: pytest.MonkeyPatch) -> SetBy:
    """Set the time of day forwards or backwards, as the engine reads it."""
    offset = timedelta()

    class Wall(datetime):
        """The time of day, with the jump."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + offset

    def set_by(by: timedelta) -> None:
        nonlocal offset
        offset += by

    monkeypatch.setattr(clocks, "datetime", Wall)
    return set_by


async def ended_in_time(waiting: asyncio.Future[None]) -> float:
    """Return how many seconds the wait still takes on the monotonic clock. A jump that counted would take an hour."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(60):
        await waiting
    return loop.time() - began


async def begun() -> None:
    """Let tasks that were started begin to wait."""
    for _ in range(10):
        await asyncio.sleep(0.001)


class TestWithinAProcess:
    """A wait that has begun takes as long as intended, whatever happens to the time of day."""

    @JUMPS
    async def test_a_wait_is_neither_stretched_nor_skipped(self, set_by: SetBy, jump: timedelta) -> None:
        """A wait of 0.3 seconds takes 0.3 seconds, although the time of day jumps by an hour."""
        clock = SystemClock()
        waiting = asyncio.ensure_future(clock.sleep_until(clock.now() + timedelta(seconds=0.3)))
        await asyncio.sleep(0)
        set_by(jump)

        assert await ended_in_time(waiting) > 0.25

    @JUMPS
    async def test_a_retry_comes_when_it_was_to_come(self, database: Path, set_by: SetBy, jump: timedelta) -> None:
        """The turn ends, its log replays, and its times are those of the time of day."""
        llm = ScriptedLlm([failure("timeout"), reply("Now.")])
        policy = Policy(retry=Retry(attempts=2, base=0.2, cap=0.2))

        async with Engine.open(database, model=llm, policy=policy) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await until(lambda: conversation.state.type == "retry_waiting")
            await begun()
            set_by(jump)
            async with asyncio.timeout(60):
                assert (await turn).reply == "Now."

            assert (await conversation.send("And now?", wait=False)).number == 2
            moments = [entry.event.at for entry in await conversation.events()]
            assert (moments[-1] - moments[0] > timedelta(minutes=50)) is (jump > timedelta())
            assert (await conversation.replay()).divergence is None
            assert (await examine(engine.store)).findings == ()

    @JUMPS
    async def test_a_question_waits_for_as_long_as_it_was_to_wait(
        self, database: Path, set_by: SetBy, jump: timedelta
    ) -> None:
        """A deadline of an hour and a half neither passes nor vanishes when somebody sets the clock."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])
        policy = Policy(questions=Questions(deadline=5_400))

        async with Engine.open(database, model=llm, tools=["ask_user_question"], policy=policy) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            await begun()
            set_by(2 * jump)
            await begun()

            assert conversation.state.type == "awaiting_user_response"
            assert (await conversation.answer({"When?": "6:30 PM"})).reply == "Booked."
            assert (await conversation.replay()).divergence is None
            assert (await examine(engine.store)).findings == ()


class TestAcrossProcesses:
    """Across processes, a deadline is a time of day."""

    @pytest.mark.parametrize(("jump", "over"), [(2 * HOUR, True), (-2 * HOUR, False)], ids=["forward", "back"])
    async def test_a_deadline_holds(self, database: Path, set_by: SetBy, jump: timedelta, over: bool) -> None:
        """P27: it has passed if the clock says so. It does not wait for a clock that was set back: then it lies as far
        ahead as was agreed, and an answer counts (P19)."""
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        policy, tools = Policy(questions=Questions(deadline=5_400)), ["ask_user_question"]
        async with Engine.open(database, model=asking, tools=tools, policy=policy) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            due = conversation.state.deadline.due  # type: ignore[attr-defined]
        set_by(jump)

        async with Engine.open(database, model=ScriptedLlm([reply("Well.")]), tools=tools) as engine:
            again = await engine.get(conversation.id)
            if over:
                await until(lambda: again.state.type == "idle")
            else:
                assert due - again.state.deadline.due > timedelta(hours=1.9)  # type: ignore[attr-defined]
                await again.answer({"When?": "6:30 PM"})
            assert (await again.turns())[-1].reply == "Well."
            assert (await again.replay()).divergence is None
            assert (await examine(engine.store)).findings == ()
