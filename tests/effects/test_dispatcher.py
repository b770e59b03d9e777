"""Effects are started, aborted and tried again, and a timer is due by the clock."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from turnwise.effects.clock import TimerPerformer
from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import Abortable, InProcessDispatcher, Performer, with_abort_of
from turnwise.effects.retry_queues import PendingEffect, RetryQueues, wait_after
from turnwise.states import Answer, DeliverToUser, Effect, Heard, Made, RequestLlm, SpawnSubAgent, SubAgentFinished
from turnwise.states.effects import StartTimer
from turnwise.testing import ManualClock
from turnwise.testing.doubles import NOON

from ..support.effect_contexts import NoReceipts, effect_context
from ..support.engine_scenarios import Gate

# --- The dispatcher in this process: order, aborts, answers, and performers that fail while a conversation closes.


REQUEST = RequestLlm(effect_id=1, model="model", at=NOON)


CONTEXT = effect_context("a conversation")


class TestEndings:
    """However an effect ends, nothing of it remains."""

    @pytest.mark.slow
    async def test_an_effect_that_is_aborted_at_once_was_never_begun(self) -> None:
        """Its performer is not called, and Python reports no coroutine that was never awaited."""
        begun: list[int] = []
        answers: list[tuple[str, Answer]] = []

        async def perform(effect: RequestLlm, context: EffectContext) -> Any:
            begun.append(effect.effect_id)

        dispatcher = InProcessDispatcher({RequestLlm: perform}, ManualClock(), lambda *answer: answers.append(answer))
        gc.collect()  # what other tests have left behind
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            dispatcher.dispatch((REQUEST,), CONTEXT)
            dispatcher.abort(CONTEXT.conversation_id, REQUEST.effect_id)
            await dispatcher.stop(CONTEXT.conversation_id)
            gc.collect()

        assert begun == []
        assert answers == []
        assert [str(warning.message) for warning in warned] == []

    async def test_a_performer_may_break_while_everything_closes(self) -> None:
        """Its error is dropped, and asyncio does not report it as an exception that was never retrieved."""
        reported: list[dict[str, Any]] = []
        answers: list[tuple[str, Answer]] = []

        async def perform(effect: RequestLlm, context: EffectContext) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is gone")

        asyncio.get_running_loop().set_exception_handler(lambda loop, details: reported.append(details))
        dispatcher = InProcessDispatcher({RequestLlm: perform}, ManualClock(), lambda *answer: answers.append(answer))
        dispatcher.dispatch((REQUEST,), CONTEXT)
        await asyncio.sleep(0)
        await dispatcher.stop(CONTEXT.conversation_id)
        gc.collect()

        assert answers == []
        assert reported == []


SPAWN = SpawnSubAgent(effect_id=1, task=Heard(seq=1))
SPEECH = DeliverToUser(effect_id=2, said=Made(text="Wait."), turn=1, ordinal=1)


class TestRepeatedEffects:
    """An effect that is asked for again while it runs or waits is carried out once."""

    async def test_it_is_started_once(self) -> None:
        """A conversation that is taken over asks again for what is in flight, and may have asked a moment before."""
        spoken, begun = asyncio.Event(), []

        async def deliver(effect: DeliverToUser, context: EffectContext) -> None:
            await spoken.wait()

        async def perform(effect: Any, context: EffectContext) -> Any:
            begun.append(effect.effect_id)
            await asyncio.Event().wait()

        performers = {RequestLlm: perform, SpawnSubAgent: perform, DeliverToUser: deliver}
        dispatcher = InProcessDispatcher(performers, ManualClock(), lambda *_: None)
        waiting = SPAWN.replace(effect_id=3)
        dispatcher.dispatch((REQUEST, SPEECH, waiting), CONTEXT)
        dispatcher.dispatch((REQUEST, waiting), CONTEXT)
        await let_tasks_run()
        spoken.set()
        await let_tasks_run()
        dispatcher.dispatch((REQUEST, waiting), CONTEXT)
        await let_tasks_run()

        assert begun == [1, 3]
        await dispatcher.stop(CONTEXT.conversation_id)


class Children:
    """An abortable performer of sub-agents. Each works until it is told to stop, and then takes leave with a text."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._told: dict[int, asyncio.Event] = {}

    async def abort(self, effect: SpawnSubAgent, context: EffectContext) -> None:
        """Tell the sub-agent to stop."""
        self.log.append(f"abort {effect.effect_id}")
        if effect.effect_id in self._told:
            self._told[effect.effect_id].set()

    async def __call__(self, effect: SpawnSubAgent, context: EffectContext) -> SubAgentFinished:
        """Work until the sub-agent is told to stop."""
        self.log.append(f"begin {effect.effect_id}")
        told = self._told.setdefault(effect.effect_id, asyncio.Event())
        try:
            await told.wait()
        except asyncio.CancelledError:
            self.log.append(f"cancel {effect.effect_id}")
            raise
        return SubAgentFinished(effect_id=effect.effect_id, at=NOON, outcome="I had got this far.", status="cancelled")


class TestAbortablePerformers:
    """A performer whose effects outlast it is told to stop them, and answers when they have stopped."""

    def dispatcher(
        self, children: Children | None = None, performers: Mapping[type[Effect], Performer] = MappingProxyType({})
    ) -> InProcessDispatcher:
        """Return a dispatcher whose answers are kept in `self.answers`."""
        self.children = children or Children()
        self.answers: list[Answer] = []
        return InProcessDispatcher(
            {SpawnSubAgent: self.children, **performers},
            ManualClock(),
            lambda _, answer: self.answers.append(answer),
        )

    async def test_it_is_told_and_its_own_answer_counts(self) -> None:
        """The task is not cancelled: it answers with what the sub-agent had done by then."""
        dispatcher = self.dispatcher()
        dispatcher.dispatch((SPAWN,), CONTEXT)
        await asyncio.sleep(0)
        dispatcher.abort(CONTEXT.conversation_id, 1)
        dispatcher.abort(CONTEXT.conversation_id, 1)
        await let_tasks_run()

        assert self.children.log == ["begin 1", "abort 1"]
        assert [answer.texts for answer in self.answers] == [("I had got this far.",)]

    async def test_an_effect_that_waits_is_dropped_and_the_performer_told(self) -> None:
        """An earlier process may have begun it; so it is acknowledged only after the performer has stopped it."""
        spoken = asyncio.Event()

        async def deliver(effect: DeliverToUser, context: EffectContext) -> None:
            await spoken.wait()

        dispatcher = self.dispatcher(performers={DeliverToUser: deliver})
        dispatcher.dispatch((SPEECH, SPAWN), CONTEXT)
        dispatcher.abort(CONTEXT.conversation_id, 1)
        at_once = list(self.answers)
        await let_tasks_run()
        spoken.set()
        await let_tasks_run()

        assert at_once == []
        assert self.children.log == ["abort 1"]
        assert self.answers == [SpawnSubAgent.acknowledgement(1, self.answers[0].at)]

    async def test_one_that_fails_to_stop_is_cancelled(self, caplog: pytest.LogCaptureFixture) -> None:
        """The effect is acknowledged all the same, and the error is logged."""

        class Broken(Children):
            async def abort(self, effect: SpawnSubAgent, context: EffectContext) -> None:
                raise RuntimeError("no connection")

        dispatcher = self.dispatcher(children=Broken())
        dispatcher.dispatch((SPAWN,), CONTEXT)
        await asyncio.sleep(0)
        dispatcher.abort(CONTEXT.conversation_id, 1)
        await let_tasks_run()

        assert self.children.log == ["begin 1", "cancel 1"]
        assert self.answers == [SpawnSubAgent.acknowledgement(1, self.answers[0].at)]
        assert "A performer failed to stop spawn_sub_agent." in caplog.messages

    async def test_a_conversation_that_closes_stops_nothing(self) -> None:
        """The task is cancelled without an answer, and the sub-agent is not told."""
        dispatcher = self.dispatcher()
        dispatcher.dispatch((SPAWN,), CONTEXT)
        await asyncio.sleep(0)
        await dispatcher.stop(CONTEXT.conversation_id)

        assert self.children.log == ["begin 1", "cancel 1"]
        assert self.answers == []

    async def test_a_performer_that_hangs_while_it_is_told_does_not_keep_a_conversation_from_closing(self) -> None:
        """What tells it is cancelled with it."""

        class Hangs(Children):
            async def abort(self, effect: SpawnSubAgent, context: EffectContext) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.log.append("stopped telling")

        dispatcher = self.dispatcher(children=Hangs())
        dispatcher.dispatch((SPAWN,), CONTEXT)
        await asyncio.sleep(0)
        dispatcher.abort(CONTEXT.conversation_id, 1)
        await let_tasks_run()
        await dispatcher.stop(CONTEXT.conversation_id)

        assert sorted(self.children.log) == ["begin 1", "cancel 1", "stopped telling"]
        assert self.answers == []

    @pytest.mark.slow
    @pytest.mark.parametrize("waits", [False, True], ids=["runs", "waits"])
    async def test_a_conversation_that_closes_right_behind_an_abort_tells_nothing(self, waits: bool) -> None:
        """Also where the effect waits behind a delivery. Python reports no coroutine that was never awaited."""

        async def deliver(effect: DeliverToUser, context: EffectContext) -> None:
            await asyncio.Event().wait()

        dispatcher = self.dispatcher(performers={DeliverToUser: deliver})
        gc.collect()  # what other tests have left behind
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            dispatcher.dispatch((SPEECH, SPAWN) if waits else (SPAWN,), CONTEXT)
            await asyncio.sleep(0)
            dispatcher.abort(CONTEXT.conversation_id, 1)
            await dispatcher.stop(CONTEXT.conversation_id)
            gc.collect()
        await dispatcher.release(CONTEXT.conversation_id, deliver=False)

        assert self.children.log == ([] if waits else ["begin 1", "cancel 1"])
        assert self.answers == []
        assert [str(warning.message) for warning in warned] == []

    async def test_a_function_around_a_performer_is_as_abortable_as_that(self) -> None:
        """Tracing and test kits put functions around performers."""

        async def around(effect: Any, context: EffectContext) -> Any:
            return None

        assert isinstance(with_abort_of(Children(), around), Abortable)
        assert with_abort_of(around, around) is around


async def let_tasks_run() -> None:
    """Let the tasks that are ready run, and those that they wake."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- Effects that are tried until their target has taken them, in order.
#
# How long to wait before something that has failed is tried again.


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


# --- How long the timers of a conversation wait.


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
