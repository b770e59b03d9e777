"""Clocks that are set, either way, while timers run or between two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Delivery, Engine, Limits, Policy, Texts, presets, tool
from turnwise.effects import clock as clocks
from turnwise.effects.clock import SystemClock
from turnwise.persistence.maintenance.doctor import examine
from turnwise.states import AwaitingApproval, AwaitingSubAgents, AwaitingUserResponse, Idle, RetryWaiting
from turnwise.states.policy import Questions, Retry
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, call, reply
from turnwise.testing.doubles import failure

from ..support.engine_scenarios import QUESTION, Gate, until
from ..support.families import GO, FamilyLlm, spawn

# --- A clock on the wall that is set, by an hour, either way, while timers run.
#
# Within a process waits are measured on a clock that nobody sets; across processes a deadline is a moment, and holds,
# unless it lies further ahead than was agreed: see `test_clocks_set_right`.


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


@pytest.mark.faults
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


@pytest.mark.faults
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


# --- A database that was last written by a clock that ran ahead, and clocks that are set back while an engine runs.
#
# What is waited for comes after the time that was agreed, counted from now: never at the moment that the wrong clock
# set.


NOW = ManualClock().now()
"""What the right clock shows."""

AHEAD = pytest.mark.parametrize(
    "ahead", [timedelta(hours=1), timedelta(days=1), timedelta(days=3_652)], ids=["an hour", "a day", "ten years"]
)
"""By how much the other clock runs ahead."""


@asynccontextmanager
async def opened(where: Path, llm: Any, clock: ManualClock, **options: Any) -> AsyncIterator[Engine]:
    """An engine over this database, with this clock."""
    async with Engine.open(where, model=llm, clock=clock, **options) as engine:
        yield engine


async def passes(clock: ManualClock, seconds: float, conversation: Conversation, kind: type) -> None:
    """Let so much time pass for a conversation in a state of this type: it stays in it until the last second."""
    await until(lambda: bool(clock.sleepers))
    await asyncio.sleep(0.05)
    await clock.advance(seconds - 1)
    await asyncio.sleep(0.05)
    assert isinstance(conversation.state, kind)
    await clock.advance(1)


async def ends_whole(engine: Engine, conversation: Conversation, text: str) -> None:
    """The turn ends with this text, its log replays, and nothing is damaged."""
    await until(lambda: isinstance(conversation.state, Idle))
    assert (await conversation.turns())[-1].reply == text
    assert (await conversation.replay()).divergence is None
    assert (await examine(engine.store)).findings == ()


@tool(crash="at_most_once", approval=True)
async def pay(amount: int) -> str:
    """Pay this amount."""
    return f"Paid {amount}."


@pytest.mark.slow
@pytest.mark.faults
@AHEAD
class TestAfterARestart:
    """The clock ran ahead, the process ended, and the clock was set right."""

    async def test_a_retry(self, database: Path, ahead: timedelta) -> None:
        """It waits no longer than the policy lets it."""
        policy, failing = Policy(retry=Retry(attempts=2, base=30, cap=30)), ScriptedLlm([failure("timeout")])
        async with opened(database, failing, ManualClock(NOW + ahead), policy=policy) as first:
            conversation = await first.create(conversation_id="c")
            await conversation.send("Hi", wait=False)
            await until(lambda: isinstance(conversation.state, RetryWaiting))

        clock = ManualClock()
        async with opened(database, ScriptedLlm([reply("Now.")]), clock) as engine:
            again = await engine.get("c")
            await passes(clock, 30, again, RetryWaiting)
            await ends_whole(engine, again, "Now.")

    async def test_a_question(self, database: Path, ahead: timedelta) -> None:
        """Its deadline comes, also if processes end before it again and again, and the state shows when."""
        policy, tools = Policy(questions=Questions(deadline=600)), ["ask_user_question"]
        asks = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with opened(database, asks, ManualClock(NOW + ahead), policy=policy, tools=tools) as first:
            await (await first.create(conversation_id="c")).send("A table")

        clock, llm = ManualClock(), ScriptedLlm([reply("Well.")])
        for _ in range(2):
            async with opened(database, llm, clock, tools=tools) as engine:
                again = await engine.get("c")
                await until(lambda: bool(clock.sleepers))
                assert isinstance(again.state, AwaitingUserResponse)
                assert again.state.deadline is not None
                assert again.state.deadline.due == NOW + timedelta(seconds=600)
                await clock.advance(250)
        async with opened(database, llm, clock, tools=tools) as engine:
            again = await engine.get("c")
            await passes(clock, 100, again, AwaitingUserResponse)
            await ends_whole(engine, again, "Well.")

    async def test_an_approval(self, database: Path, ahead: timedelta) -> None:
        """It is denied in time."""
        policy = Policy(approval_deadline=600)
        async with opened(
            database, ScriptedLlm([call("pay", amount=5)]), ManualClock(NOW + ahead), policy=policy, tools=[pay]
        ) as first:
            await (await first.create(conversation_id="c")).send("Pay.")

        clock = ManualClock()
        async with opened(database, ScriptedLlm([reply("Not paid.")]), clock, tools=[pay]) as engine:
            again = await engine.get("c")
            await passes(clock, 600, again, AwaitingApproval)
            await ends_whole(engine, again, "Not paid.")

    async def test_a_sub_agent(self, database: Path, ahead: timedelta) -> None:
        """It is stopped after the time that its task names, and its parent goes on."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn({"text": "slow", "seconds": 10}), "Done."], "slow": [never, never]})
        policy, tools = presets.assistant(), ["spawn_agents"]
        async with opened(database, llm, ManualClock(NOW + ahead), policy=policy, tools=tools) as first:
            await (await first.create(conversation_id="c")).send(GO, wait=False)
            await gate.arrived.wait()

        clock = ManualClock()
        async with opened(database, llm, clock, tools=tools) as engine:
            again = await engine.get("c")
            await passes(clock, 10, again, AwaitingSubAgents)
            await ends_whole(engine, again, "Done.")

    async def test_a_delivery(self, database: Path, ahead: timedelta) -> None:
        """The next attempt is made after the wait that belongs to the number of failures."""
        is_down, clock = True, ManualClock(NOW + ahead)

        def deliver(delivery: Delivery) -> None:
            if is_down:
                raise ConnectionError

        channel = RecordingChannel(deliver)
        async with opened(database, ScriptedLlm([reply("Hello.")]), clock, channels=[channel]) as first:
            await (await first.create(conversation_id="c")).send("Hi")
            await until(lambda: len(channel.failed) == 1)
            await clock.until_asleep()
            await clock.advance(1)
            await until(lambda: len(channel.failed) == 2)

        is_down, clock = False, ManualClock()
        async with opened(database, ScriptedLlm([]), clock, channels=[channel]):
            await clock.until_asleep()
            await clock.advance(1)
            assert channel.texts == []
            await clock.advance(1)
            await until(lambda: channel.texts == ["Hello."])

    async def test_the_time_of_a_turn(self, database: Path, ahead: timedelta) -> None:
        """It is counted from the moment at which the turn goes on."""
        gate, clock = Gate(), ManualClock(NOW + ahead)

        @tool(crash="pure")
        async def dig() -> str:
            """Dig for a minute."""
            gate.arrived.set()
            if clock.now() >= NOW + ahead:
                await asyncio.Event().wait()
            await clock.advance(60)
            return "Stones."

        llm = FunctionLlm(lambda request: call("dig"))
        policy = Policy(limits=Limits(seconds=60), texts=Texts(limit="Too long."))
        async with opened(database, llm, clock, policy=policy, tools=[dig]) as first:
            await (await first.create(conversation_id="c")).send("Dig.", wait=False)
            await gate.arrived.wait()

        clock = ManualClock()
        async with opened(database, llm, clock, tools=[dig]) as engine:
            await ends_whole(engine, await engine.get("c"), "Too long.")
            assert clock.now() == NOW + timedelta(seconds=60)

    async def test_an_interval(self, database: Path, ahead: timedelta) -> None:
        """A schedule comes after its interval, and goes on from there."""
        async with opened(database, FunctionLlm(lambda request: "Seen."), ManualClock(NOW + ahead)) as first:
            await first.create(conversation_id="c", every=600, task="Look.")

        clock = ManualClock()
        async with opened(database, FunctionLlm(lambda request: "Seen."), clock) as engine:
            again = await engine.get("c")
            await until(lambda: again.next_wake == NOW + timedelta(seconds=600))
            await passes(clock, 600, again, Idle)
            await until(lambda: again.state.book.turn == 1)
            await ends_whole(engine, again, "Seen.")
            assert again.next_wake == NOW + timedelta(seconds=1_200)

    async def test_a_cron_expression(self, database: Path, ahead: timedelta) -> None:
        """It comes at its next moment from now."""
        async with opened(database, FunctionLlm(lambda request: "Seen."), ManualClock(NOW + ahead)) as first:
            await first.create(conversation_id="c", cron="30 * * * *", task="Look.")

        clock = ManualClock()
        async with opened(database, FunctionLlm(lambda request: "Seen."), clock) as engine:
            again = await engine.get("c")
            await until(lambda: again.next_wake == NOW + timedelta(minutes=30))
            await passes(clock, 1_800, again, Idle)
            await until(lambda: again.state.book.turn == 1)
            await ends_whole(engine, again, "Seen.")


@pytest.mark.slow
@pytest.mark.faults
@AHEAD
class TestInARunningProcess:
    """The clock is set back while an engine runs."""

    async def test_schedules_go_on(self, database: Path, ahead: timedelta) -> None:
        """Each comes after its interval or at its next moment, not when the clock is where it was."""
        clock = ManualClock(NOW + ahead)
        async with opened(database, FunctionLlm(lambda request: "Seen."), clock) as engine:
            often = await engine.create(conversation_id="often", every=600, task="Look.")
            daily = await engine.create(conversation_id="daily", cron="30 14 * * *", task="Look.")
            await until(lambda: bool(clock.sleepers))
            clock.set_to(NOW)

            for _ in range(60):
                await clock.advance(60)
                await asyncio.sleep(0.01)

            assert often.state.book.turn >= 5
            assert daily.next_wake == NOW + timedelta(hours=2, minutes=30)
            assert (await often.replay()).divergence is None

    async def test_a_question_lapses_after_its_time(self, database: Path, ahead: timedelta) -> None:
        """The wait that has begun takes as long as was agreed."""
        clock, policy = ManualClock(NOW + ahead), Policy(questions=Questions(deadline=600))
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Well.")])
        async with opened(database, llm, clock, policy=policy, tools=["ask_user_question"]) as engine:
            conversation = await engine.create(conversation_id="c")
            await conversation.send("A table")
            await clock.until_asleep()
            clock.set_to(NOW)

            await passes(clock, 600, conversation, AwaitingUserResponse)
            await ends_whole(engine, conversation, "Well.")

    async def test_a_turn_has_no_more_time(self, database: Path, ahead: timedelta) -> None:
        """What was left of it is not counted by the clock that was wrong."""
        clock = ManualClock(NOW + ahead)

        @tool(crash="pure")
        async def dig() -> str:
            """Dig for half a minute, once the clock is right."""
            if clock.now() > NOW + timedelta(minutes=30):
                clock.set_to(NOW)
            else:
                await clock.advance(30)
            return "Stones."

        policy = Policy(limits=Limits(seconds=60), texts=Texts(limit="Too long."))
        llm = FunctionLlm(lambda request: call("dig"))
        async with opened(database, llm, clock, policy=policy, tools=[dig]) as engine:
            conversation = await engine.create(conversation_id="c")
            await conversation.send("Dig.")
            await ends_whole(engine, conversation, "Too long.")
            assert clock.now() == NOW + timedelta(seconds=60)
