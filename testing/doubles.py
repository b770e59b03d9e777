"""Doubles of the ports of an engine, for tests: a channel that records, a clock moved by hand, and models that are told
what to answer.

    llm = ScriptedLlm([call("find_table", party=2), reply("Table 4 is free.")])
    channel, clock = RecordingChannel(), ManualClock()
    async with Engine.open("sqlite://", model=llm, tools=[find_table], channels=[channel], clock=clock) as engine: ...
    llm.assert_finished()
    assert channel.texts == ["Table 4 is free."]

An hour's wait takes no time, and ends exactly when the test says so. The deadlines of questions, approvals and cancels
and the waits between attempts follow the clock of the engine. The timeouts of models and tools do not: they are
measured by the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..states.values.messages import Usage
from ..states.values.value import FailureKind, later
from .generation.chance import NOON

if TYPE_CHECKING:
    from ..effects.channels.port import Delivery
    from ..effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Purpose, Token


class RecordingChannel:
    """Records every delivery, in order.

    `function`, if given, is called with each delivery first. It may be a coroutine function, so that a test can hold a
    delivery back. If it raises, the delivery has failed and is recorded in `failed`.
    """

    def __init__(self, function: Callable[[Delivery], Any] | None = None, *, name: str = "recording") -> None:
        self.name = name
        self.deliveries: list[Delivery] = []
        self.failed: list[Delivery] = []
        self._function = function

    @property
    def texts(self) -> list[str]:
        """The texts that the user received."""
        return [delivery.text for delivery in self.deliveries]

    async def deliver(self, delivery: Delivery) -> None:
        """Record the delivery, unless the function of this channel raises."""
        try:
            outcome = None if self._function is None else self._function(delivery)
            if inspect.isawaitable(outcome):
                await outcome
        except BaseException:
            self.failed.append(delivery)
            raise
        self.deliveries.append(delivery)


class ManualClock:
    """A `Clock` whose time moves only when a test moves it, and passes only forwards. It starts at noon of 1 June 2026,
    UTC, or at `start`. `set_to` sets it, also back.

    Raises ValueError for a moment without a time zone.
    """

    def __init__(self, start: datetime = NOON) -> None:
        self._now = _in_utc(start)
        self._sleepers: list[_Sleeper] = []
        self._fell_asleep = asyncio.Event()

    def now(self) -> datetime:
        """This moment, in UTC."""
        return self._now

    @property
    def sleepers(self) -> tuple[datetime, ...]:
        """The moments at which the sleeping tasks are due, the soonest first."""
        return tuple(sorted(sleeper.due for sleeper in self._sleepers))

    async def sleep_until(self, due: datetime) -> None:
        """Return once the clock has been moved to `due`. If that moment is past, only let other tasks run."""
        due = _in_utc(due)
        if due <= self._now:
            await asyncio.sleep(0)
            return
        sleeper = _Sleeper(due, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._fell_asleep.set()
        try:
            await sleeper.woken
        finally:
            if sleeper in self._sleepers:  # the task was cancelled in its sleep
                self._sleepers.remove(sleeper)

    async def until_asleep(self, count: int = 1) -> None:
        """Return when at least so many tasks sleep.

        Wait for this before you move the clock past a timer whose start involves other threads, such as a store's: a
        timer that has not been started yet would start at the later time.
        """
        while len(self._sleepers) < count:
            self._fell_asleep.clear()
            await self._fell_asleep.wait()

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; see `advance_to`. Raises ValueError if they are negative."""
        if not seconds >= 0:
            raise ValueError("A clock does not run backwards.")
        await self.advance_to(later(self._now, seconds))

    async def advance_to(self, moment: datetime) -> None:
        """Move the clock to this moment, and stop at each moment at which a sleeping task is due.

        Tasks wake in the order in which they are due, and those that are due together in the order in which they fell
        asleep. At each stop the clock shows that very moment and the woken tasks run on, so a task that falls asleep
        again and is due before `moment` wakes again, too. Work in other threads is not waited for.

        Raises ValueError for a moment that is past.
        """
        moment = _in_utc(moment)
        if moment < self._now:
            raise ValueError("A clock does not run backwards.")
        await _let_tasks_run()  # a task that was about to sleep does so by the time before
        while self._sleepers and (due := self.sleepers[0]) <= moment:
            self._now = max(self._now, due)
            self._wake()
            await _let_tasks_run()
        self._now = max(self._now, moment)

    def set_to(self, moment: datetime) -> None:
        """Set the clock, forward or back, as an administrator does. No time passes: tasks that sleep do so for as long
        as before, as with the clock of the system."""
        moment = _in_utc(moment)
        for sleeper in self._sleepers:
            sleeper.due = later(moment, (sleeper.due - self._now).total_seconds())
        self._now = moment

    def _wake(self) -> None:
        """Wake every task that is due now."""
        due = sorted((sleeper for sleeper in self._sleepers if sleeper.due <= self._now), key=lambda each: each.due)
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.due > self._now]
        for sleeper in due:
            if not sleeper.woken.done():
                sleeper.woken.set_result(None)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("A moment needs a time zone.")
    return moment.astimezone(UTC)


@dataclass(eq=False)
class _Sleeper:
    due: datetime
    woken: asyncio.Future[None]


ROUNDS = 50
"""How often other tasks run before time moves on: enough for a chain of as many tasks, each of which wakes the next."""


async def _let_tasks_run() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


class FunctionLlm:
    """A model that is a function of the request, which has `.messages`, `.tools` and so on.

    The function returns an answer, a failure, or a text. It may be a coroutine function, so that a test can hold an
    answer back. `requests` are the requests so far.
    """

    def __init__(self, function: Callable[[ModelRequest], Any], *, name: str = "function") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._function = function

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request. A text is shown as one token before it is returned, and so is what a call says."""
        from ..effects.model.port import LlmFailure, Token
        from ..effects.model.spoken_words import spoken_by

        self.requests.append(request)
        answer: Any = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, LlmFailure):
            raise answer
        if isinstance(answer, str):
            answer = reply(answer)
        if answer.content:
            show(Token(answer.content))
        for token in spoken_by(answer.tool_calls, request.spoken):
            show(token)
        made: ModelAnswer = answer
        return made


class ScriptedLlm(FunctionLlm):
    """A model that gives these answers (or failures, or texts), one to a request, in this order.

    Every request takes one: those of the conversation itself and of its sub-agents, the check whether the work is
    complete (answer it with `verdict`), and summaries. A request for which no answer is left fails. Call
    `assert_finished` at the end of a test: it raises if that happened, or if answers are left.
    """

    def __init__(self, answers: Iterable[ModelAnswer | LlmFailure | str | Awaitable[Any]], *, name: str = "scripted"):
        super().__init__(self._next, name=name)
        self._answers = list(answers)
        self._unexpected: list[str] = []

    def assert_finished(self) -> None:
        """Raise AssertionError if a request found no answer, or if an answer was not used."""
        assert not self._unexpected, " ".join(self._unexpected)
        assert not self._answers, f"{len(self._answers)} answers of the script were never used"

    def _next(self, request: ModelRequest) -> Any:
        if not self._answers:
            self._unexpected.append(_unanswered(request, len(self.requests)))
            return failure("internal", self._unexpected[-1])
        return self._answers.pop(0)


_WANTED: Mapping[Purpose, str] = {
    "converse": "the next answer in the conversation",
    "check": "the check of a claim that the work is complete",
    "summarize": "the summary of a turn for display",
    "condense": "the summary in place of what no longer fits the window",
    "reword": "words for a voice",
}


def _unanswered(request: ModelRequest, number: int) -> str:
    return f"The script has no answer to request {number}, {_WANTED[request.purpose]}."


def reply(text: str, *, thinking: str = "", finish_reason: str = "stop", usage: Usage | None = None) -> ModelAnswer:
    """An answer with a text."""
    from ..effects.model.port import ModelAnswer

    return ModelAnswer(content=text, thinking=thinking, finish_reason=finish_reason, usage=usage or Usage())


def call(tool_name: str, /, **arguments: Any) -> ModelAnswer:
    """An answer that calls one tool. Every keyword is an argument of the call: `calls` takes the usage and a text."""
    from ..effects.model.port import ModelAnswer, ModelCall

    made = ModelCall(id="call_0", name=tool_name, arguments=json.dumps(arguments, ensure_ascii=False))
    return ModelAnswer(tool_calls=(made,), finish_reason="tool_calls")


def calls(*answers: ModelAnswer, text: str = "", usage: Usage | None = None) -> ModelAnswer:
    """An answer with the calls of all these answers, a text if one is given, and what it has used up."""
    from ..effects.model.port import ModelAnswer

    made = tuple(made for answer in answers for made in answer.tool_calls)
    return ModelAnswer(content=text, tool_calls=made, finish_reason="tool_calls", usage=usage or Usage())


def verdict(passed: bool, reason: str = "", missing: Iterable[str] = ()) -> ModelAnswer:
    """The answer to a request that checks whether the work is complete: whether it is, why it is not, and what is
    missing."""
    return reply(json.dumps({"passed": passed, "reason": reason, "missing": list(missing)}, ensure_ascii=False))


def failure(kind: FailureKind, sentence: str = "The model failed.", *, retry_after: float | None = None) -> LlmFailure:
    """A failure of the request; `retry_after` is in seconds."""
    from ..effects.model.port import LlmFailure

    return LlmFailure(kind, sentence, retry_after)
