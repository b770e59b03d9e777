"""The doubles, as a host's own tests use them: a model that answers as it is told, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import turnwise.testing
from turnwise import ConfigurationError, Conversation, Engine, Policy, Questions, Retry, Usage, presets
from turnwise.effects.clock import Clock
from turnwise.effects.model.performers.verification import Verdict, read_verdict
from turnwise.effects.model.port import ModelRequest
from turnwise.testing import ManualClock, ScriptedLlm, call, calls, reply, verdict
from turnwise.testing.doubles import failure

from ..support.engine_scenarios import QUESTION, results, until

# --- The doubles of a model, as a host's own tests use them: what they answer, and what they say when they have no
# answer.


TOOLS = ("respond_to_user", "mark_work_complete")
WORK = calls(call("respond_to_user", text="Rice."), call("mark_work_complete", summary="Read it."))
RULES = presets.explicit_response().replace(summarize=True)


async def say(text: str, llm: ScriptedLlm, database: Path, policy: Policy = RULES) -> Conversation:
    """Send this text in a new conversation with that model."""
    async with Engine.open(database, model=llm, tools=TOOLS, policy=policy) as engine:
        conversation = await engine.create()
        await conversation.send(text)
        return conversation


class TestWhatARequestIsFor:
    """`ModelRequest.purpose`."""

    async def test_every_kind_of_request_says_what_it_is_for(self, database: Path) -> None:
        """S11, S12, P21: the work, its check and its summary, and later the summary of all that was said."""
        llm = ScriptedLlm([WORK, verdict(True), "They read a note.", "Notes were read."])
        async with Engine.open(database, model=llm, tools=TOOLS, policy=RULES) as engine:
            conversation = await engine.create()
            await conversation.send("Read me my note.")
            await conversation.compact()

        assert [request.purpose for request in llm.requests] == ["converse", "check", "summarize", "condense"]
        llm.assert_finished()

    def test_a_request_of_ones_own_is_the_conversation_s(self) -> None:
        """`converse` is the default."""
        assert ModelRequest("m", ({"role": "user", "content": "Hi"},)).purpose == "converse"


class TestAScriptThatHasRunOut:
    """P33: the error says which request the script has no answer for."""

    @pytest.mark.parametrize(
        ("script", "sentence"),
        [
            ([], "The script has no answer to request 1, the next answer in the conversation."),
            ([WORK], "The script has no answer to request 2, the check of a claim that the work is complete."),
            ([WORK, verdict(True)], "The script has no answer to request 3, the summary of a turn for display."),
        ],
        ids=["work", "check", "summary"],
    )
    async def test_it_says_what_was_asked_for(self, script: list[object], sentence: str, database: Path) -> None:
        """Requests are counted from 1."""
        llm = ScriptedLlm(script)  # type: ignore[arg-type]

        await say("Read me my note.", llm, database)

        with pytest.raises(AssertionError) as failed:
            llm.assert_finished()
        assert str(failed.value).startswith(sentence)

    async def test_the_turn_says_so_too(self, database: Path) -> None:
        """The error is the failure of the turn, so a test that prints the turn shows it."""
        conversation = await say("Hi", llm := ScriptedLlm([]), database, Policy())

        assert conversation.state.type == "failed"
        assert getattr(conversation.state, "sentence", "") == (
            "The script has no answer to request 1, the next answer in the conversation."
        )
        assert len(llm.requests) == 1

    async def test_answers_that_are_left_are_told(self, database: Path) -> None:
        """`assert_finished` reports answers that were not requested."""
        await say("Hi", llm := ScriptedLlm(["Hello.", "And?"]), database, Policy())

        with pytest.raises(AssertionError, match="1 answers of the script were never used"):
            llm.assert_finished()


class TestAnswers:
    """`calls` and `verdict`."""

    def test_calls_are_one_answer(self) -> None:
        """The calls are in one response, in order, with the text."""
        used = Usage(input_tokens=7, output_tokens=2)
        answer = calls(call("find_table", party=2), call("find_taxi"), text="One moment.", usage=used)

        assert [(made.name, made.arguments) for made in answer.tool_calls] == [
            ("find_table", '{"party": 2}'),
            ("find_taxi", "{}"),
        ]
        assert (answer.content, answer.usage) == ("One moment.", used)

    @pytest.mark.parametrize(
        ("given", "read"),
        [
            (verdict(True), Verdict(passed=True, reason="", missing=())),
            (verdict(True, "Ünd “so”."), Verdict(passed=True, reason="Ünd “so”.", missing=())),
            (verdict(False, "No.", ["a", "b"]), Verdict(passed=False, reason="No.", missing=("a", "b"))),
        ],
    )
    def test_a_verdict_is_read_as_it_was_given(self, given: object, read: Verdict) -> None:
        """S11: the verifier reads what `verdict` writes."""
        assert read_verdict(getattr(given, "content", "")) == read

    def test_a_verdict_is_no_more_than_a_text(self) -> None:
        """So it can be used wherever a model answers."""
        assert verdict(True) == reply('{"passed": true, "reason": "", "missing": []}')


SEARCHES = {
    *("ConversationMachine", "call_of", "calls_of", "conversation_settings", "effects", "events", "events_for"),
    *("policies", "states", "traces"),
}
"""What searches for examples, and so needs hypothesis."""


class TestWithoutHypothesis:
    """The extra `testing` is needed only for what generates conversations."""

    @pytest.mark.slow
    def test_it_is_told_by_its_extra(self, tmp_path: Path) -> None:
        """P33: each name of the kit can be imported, or says in a sentence what to install."""
        program = """
import sys
sys.modules["hypothesis"] = None
import turnwise.testing
for name in turnwise.testing.__all__:
    try:
        getattr(turnwise.testing, name)
    except ModuleNotFoundError as error:
        print(error)
    else:
        print(name)
from turnwise.testing import traces
"""
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

        told = ran.stdout.splitlines()
        assert {"ScriptedLlm", "ManualClock", "RecordingChannel", "call", "verdict"} <= {*told}
        assert [line for line in told if " " in line] == [
            f'{name} needs the package hypothesis: pip install "turnwise[testing]".'
            for name in sorted(turnwise.testing.__all__)
            if name in SEARCHES
        ]
        assert ran.stderr.splitlines()[-1] == (
            'ModuleNotFoundError: traces needs the package hypothesis: pip install "turnwise[testing]".'
        )


# --- A clock that a test moves, and an engine that uses it.


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Sleepers:
    """Tasks that sleep; records the order and the times in which they woke, in seconds after `NOON`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.woke: list[tuple[str, float]] = []

    def sleep(self, name: str, *seconds: float) -> asyncio.Task[None]:
        """Start a task that sleeps until each of these times, one after the other."""
        return asyncio.ensure_future(self._sleep(name, seconds))

    async def _sleep(self, name: str, naps: tuple[float, ...]) -> None:
        for nap in naps:
            await self.clock.sleep_until(self.clock.now() + timedelta(seconds=nap))
            self.woke.append((name, (self.clock.now() - NOON).total_seconds()))


@pytest.fixture
def clock() -> ManualClock:
    """A clock at noon."""
    return ManualClock(NOON)


@pytest.fixture
def sleepers(clock: ManualClock) -> Sleepers:
    """Tasks that sleep by that clock."""
    return Sleepers(clock)


class TestTime:
    """The time that the clock tells."""

    def test_it_is_a_clock_of_the_engine(self, clock: ManualClock) -> None:
        """It implements the port."""
        assert isinstance(clock, Clock)

    def test_it_starts_where_a_test_says_and_tells_the_time_in_utc(self) -> None:
        """A start in another time zone is converted."""
        start = datetime(2026, 6, 1, 14, tzinfo=timezone(timedelta(hours=2)))

        clock = ManualClock(start=start)

        assert clock.now() == NOON
        assert clock.now().tzinfo is UTC

    async def test_it_moves_only_when_it_is_moved(self, clock: ManualClock) -> None:
        """By seconds, or to a time; both to the microsecond."""
        await clock.advance(1.5)
        await clock.advance(0)
        by_seconds = clock.now()
        await clock.advance_to(NOON + timedelta(days=1, microseconds=1))

        assert by_seconds == NOON + timedelta(seconds=1.5)
        assert clock.now() == NOON + timedelta(days=1, microseconds=1)

    async def test_it_stops_at_the_end_of_the_calendar(self, clock: ManualClock) -> None:
        """More seconds than that move it to the last possible time."""
        await clock.advance(1e308)

        assert clock.now() == datetime.max.replace(tzinfo=UTC)

    @pytest.mark.parametrize("seconds", [-1.0, -1e-9, float("nan")])
    async def test_it_does_not_run_backwards(self, clock: ManualClock, seconds: float) -> None:
        """It raises an error with one sentence and keeps its time."""
        with pytest.raises(ValueError, match=r"^A clock does not run backwards\.$"):
            await clock.advance(seconds)
        with pytest.raises(ValueError, match=r"^A clock does not run backwards\.$"):
            await clock.advance_to(NOON - timedelta(microseconds=1))

        assert clock.now() == NOON

    async def test_a_moment_needs_a_time_zone(self, clock: ManualClock) -> None:
        """A time without a zone is refused."""
        naive = NOON.replace(tzinfo=None)

        with pytest.raises(ValueError, match=r"^A moment needs a time zone\.$"):
            ManualClock(naive)
        with pytest.raises(ValueError, match=r"^A moment needs a time zone\.$"):
            await clock.advance_to(naive)
        with pytest.raises(ValueError, match=r"^A moment needs a time zone\.$"):
            await clock.sleep_until(naive)


class TestSleepers:
    """Tasks that wait for the clock."""

    async def test_a_sleeper_wakes_when_it_is_due_and_no_sooner(self, clock: ManualClock, sleepers: Sleepers) -> None:
        """The clock shows the time that it was due at, however far it is moved."""
        sleepers.sleep("a", 10)

        await clock.advance(9.999999)
        too_soon = list(sleepers.woke)
        await clock.advance(60)

        assert too_soon == []
        assert sleepers.woke == [("a", 10)]

    async def test_sleepers_wake_in_the_order_in_which_they_are_due(
        self, clock: ManualClock, sleepers: Sleepers
    ) -> None:
        """Each at its own time, in whatever order they began to sleep."""
        sleepers.sleep("late", 30)
        sleepers.sleep("early", 10)
        sleepers.sleep("between", 20)

        await clock.advance(30)

        assert sleepers.woke == [("early", 10), ("between", 20), ("late", 30)]

    async def test_those_due_together_wake_in_the_order_in_which_they_fell_asleep(
        self, clock: ManualClock, sleepers: Sleepers
    ) -> None:
        """Even if they began to sleep at different times."""
        sleepers.sleep("first", 10)
        await clock.advance(4)
        for name in ("second", "third"):
            sleepers.sleep(name, 6)

        await clock.advance(6)

        assert sleepers.woke == [("first", 10), ("second", 10), ("third", 10)]

    async def test_one_that_falls_asleep_again_wakes_again(self, clock: ManualClock, sleepers: Sleepers) -> None:
        """Everything that becomes due during `advance` happens in it, in order, with other sleepers in between."""
        sleepers.sleep("often", 10, 10, 10, 10)
        sleepers.sleep("once", 25)

        await clock.advance(30)

        assert sleepers.woke == [("often", 10), ("often", 20), ("once", 25), ("often", 30)]
        assert clock.sleepers == (NOON + timedelta(seconds=40),)

    async def test_what_a_sleeper_sets_off_happens_at_its_moment(self, clock: ManualClock) -> None:
        """Tasks that were woken run, through a chain of others, before the clock moves on."""
        seen: list[datetime] = []

        async def relay(links: int) -> None:
            if links:
                await asyncio.ensure_future(relay(links - 1))
            else:
                seen.append(clock.now())

        async def sets_off() -> None:
            await clock.sleep_until(NOON + timedelta(seconds=10))
            await relay(10)

        task = asyncio.ensure_future(sets_off())
        await clock.advance(3_600)

        await task
        assert seen == [NOON + timedelta(seconds=10)]

    async def test_a_sleeper_that_is_cancelled_is_forgotten(self, clock: ManualClock, sleepers: Sleepers) -> None:
        """The others sleep on, and no other task wakes in its place."""
        cancelled = sleepers.sleep("cancelled", 10)
        sleepers.sleep("stays", 10)
        await clock.until_asleep(2)

        cancelled.cancel()
        await asyncio.wait([cancelled])
        left = clock.sleepers
        await clock.advance(10)

        assert cancelled.cancelled()
        assert left == (NOON + timedelta(seconds=10),)
        assert sleepers.woke == [("stays", 10)]

    async def test_a_sleeper_may_be_cancelled_by_one_that_wakes_with_it(
        self, clock: ManualClock, sleepers: Sleepers
    ) -> None:
        """If both are due, the first to wake can cancel the second."""

        async def stops() -> None:
            await clock.sleep_until(NOON + timedelta(seconds=10))
            stopped.cancel()

        task = asyncio.ensure_future(stops())
        stopped = sleepers.sleep("stopped", 10)
        await clock.advance(10)

        await task
        assert stopped.cancelled()
        assert sleepers.woke == []

    async def test_what_is_past_is_not_waited_for(self, clock: ManualClock) -> None:
        """A time in the past needs no advance."""
        async with asyncio.timeout(60):
            await clock.sleep_until(NOON)
            await clock.sleep_until(NOON - timedelta(days=1))

        assert clock.sleepers == ()

    async def test_a_test_can_wait_until_somebody_sleeps(self, clock: ManualClock, sleepers: Sleepers) -> None:
        """So that it advances the clock neither too early nor by a guess."""
        waiting = asyncio.ensure_future(clock.until_asleep(2))
        sleepers.sleep("one", 10)
        await clock.until_asleep()
        one_asleep = waiting.done()
        sleepers.sleep("two", 20)

        async with asyncio.timeout(60):
            await waiting
        assert not one_asleep


class TestAnEngineThatKeepsTimeByIt:
    """Hours of the clock take no real time, over a real database."""

    async def test_a_question_waits_until_its_deadline_and_no_longer(self, database: Path, clock: ManualClock) -> None:
        """Case P39: with a deadline of ten minutes, it is still open a second before that."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("I take 6:30 PM.")])
        policy = Policy(questions=Questions(deadline=600.0))
        began = time.monotonic()

        async with Engine.open(database, model=llm, tools=["ask_user_question"], clock=clock) as engine:
            conversation = await engine.create(policy=policy)
            asked = await conversation.send("A table?")
            await clock.until_asleep()
            await clock.advance(599)
            just_before = conversation.state.type
            await clock.advance(1)
            await until(lambda: conversation.state.type == "idle")
            turns = await conversation.turns()
            said = await conversation.transcript()
            events = await conversation.events()

        assert asked.status == "awaiting_user"
        assert just_before == "awaiting_user_response"
        assert [turn.reply for turn in turns] == ["I take 6:30 PM."]
        assert results(said) == ["No answer came in time. Use your own judgment and go on."]
        assert events[0].event.at == NOON
        assert events[-1].event.at == NOON + timedelta(minutes=10)
        assert time.monotonic() - began < 60

    async def test_a_failed_request_backs_off_and_is_sent_again(self, database: Path, clock: ManualClock) -> None:
        """P11: after one hour, then after two, without waiting."""
        llm = ScriptedLlm([failure("server_error"), failure("rate_limit"), reply("At last.")])
        policy = Policy(retry=Retry(attempts=3, base=3_600.0, factor=2.0, cap=86_400.0))
        requests: list[int] = []
        began = time.monotonic()

        async with Engine.open(database, model=llm, clock=clock) as engine:
            conversation = await engine.create(policy=policy)
            sending = asyncio.ensure_future(conversation.send("Hi"))
            for hours in (1, 2):
                await clock.until_asleep()
                requests.append(len(llm.requests))
                await clock.advance(hours * 3_600)
            turn = await sending

        assert turn.reply == "At last."
        assert requests == [1, 2]
        assert clock.now() == NOON + timedelta(hours=3)
        assert time.monotonic() - began < 60

    async def test_a_deadline_outlives_the_engine(self, database: Path, clock: ManualClock) -> None:
        """An engine that is opened an hour later finds that the deadline has passed."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("I take 6:30 PM.")])
        policy = Policy(questions=Questions(deadline=600.0))
        async with Engine.open(database, model=llm, tools=["ask_user_question"], clock=clock) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send("A table?")
        await clock.advance(3_600)

        async with Engine.open(database, model=llm, tools=["ask_user_question"], clock=clock) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            turns = await again.turns()

        assert [turn.reply for turn in turns] == ["I take 6:30 PM."]

    def test_what_is_no_clock_is_refused(self) -> None:
        """A wrong configuration is refused with one sentence, at once."""
        with pytest.raises(ConfigurationError, match="takes Clock as its clock"):
            Engine.open("sqlite://", clock="noon")  # type: ignore[arg-type]
