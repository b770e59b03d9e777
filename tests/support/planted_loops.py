"""Loops of an engine with one bug each, for simulations that must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwise import Engine
from turnwise.engine.loop import Loop
from turnwise.engine.projections.updates import Update
from turnwise.engine.recent_requests import RecentRequests
from turnwise.engine.recovery import reports
from turnwise.persistence.errors import StorageFailed
from turnwise.states import Effect, Event, ExecuteTool, Failed, LogEntry, Refused, Request, Resumed, Step, transition


def planted(kind: type[Loop]) -> type[Engine]:
    """An engine that drives its conversations with loops of this kind."""

    class Planted(Engine):
        loop_type = kind

    return Planted


class StartsTwice(Loop):
    """It has each effect carried out twice."""

    def _dispatch(self, effects: Sequence[Effect]) -> None:
        super()._dispatch(effects)
        super()._dispatch(effects)


class TakesAnyAnswer(Loop):
    """It does not ask whether anybody waits for an answer."""

    async def _step(self, event: Event) -> Step:
        return await self._carry_out(event, transition(self.state, event, self.projection.context))

    async def _carry_out(self, event: Event, step: Step) -> Step:
        await self._log.append(event, step, self._outbox.of(step.effects))
        self._publish(self.projection.advance(LogEntry.of(event, step), step.state))
        self._dispatch(step.effects)
        return step


class DropsAnswers(Loop):
    """Its mailbox loses an answer that comes while another event is being taken."""

    def answer(self, answer: Event) -> None:  # noqa: D102
        if not self._mailbox._draining:
            super().answer(answer)


class GivesUpOnTheDisk(Loop):
    """It forgets an answer that could not be stored."""

    async def _take(self, event: Event | None) -> Step:
        try:
            return await super()._take(event)
        except StorageFailed:
            raise Refused("storage") from None


class PerformsFirst(Loop):
    """It begins what is not stored yet."""

    async def _step(self, event: Event) -> Step:
        step = transition(self.state, event, self.projection.context)
        if not step.ignored:
            self._dispatch(step.effects)
            await self._log.append(event, step, self._outbox.of(step.effects))
            self._publish(self.projection.advance(LogEntry.of(event, step), step.state))
        return step


class RunsAhead(Loop):
    """Its memory advances before the step is stored."""

    async def _step(self, event: Event) -> Step:
        step = transition(self.state, event, self.projection.context)
        if not step.ignored:
            updates = self.projection.advance(LogEntry.of(event, step), step.state)
            await self._log.append(event, step, self._outbox.of(step.effects))
            self._publish(updates)
            self._dispatch(step.effects)
        return step


class ShowsFirst(Loop):
    """It shows what is not stored yet."""

    async def _step(self, event: Event) -> Step:
        step = transition(self.state, event, self.projection.context)
        if not step.ignored:
            before = self.projection.state
            self._publish(self.projection.advance(LogEntry.of(event, step), step.state))
            self.projection.state = before
            await self._log.append(event, step, self._outbox.of(step.effects))
            self.projection.state = step.state
            self._dispatch(step.effects)
        return step


class PromisesFirst(Loop):
    """It tells who asked before the step is stored."""

    async def _take(self, event: Event | None) -> Step:
        assert event is not None
        step = transition(self.state, event, self.projection.context)
        self._storing = asyncio.ensure_future(super()._take(event))
        return step


class Forgetful(RecentRequests):
    """It remembers no request, and finds none in the log."""

    async def was_taken(self, request: Request) -> bool:  # noqa: D102
        return False


class ForgetsRequests(Loop):
    """It takes a request again that it took before."""

    async def _take(self, event: Event | None) -> Step:
        self._recent = Forgetful(self._log)
        return await super()._take(event)


class TakesAnotherForTheSame(Loop):
    """It goes by the id of a request alone, and not by what it says."""

    async def _take(self, event: Event | None) -> Step:
        if isinstance(event, Request) and event.event_id in self._recent._recent:
            return Step(self.state, ignored=True)
        return await super()._take(event)


class TellsTooFew(Loop):
    """It forgets who waits for a turn that fails."""

    def _publish(self, updates: tuple[Update, ...] | None) -> None:
        if isinstance(self.state, Failed):
            self.feed.publish(*(updates or ()))
        else:
            super()._publish(updates)


class ShowsTooLittle(Loop):
    """It shows the last update of each step, and not those before it."""

    def _publish(self, updates: tuple[Update, ...] | None) -> None:
        super()._publish(updates and updates[-1:])


class SwallowsFailures(Loop):
    """It drops the answer to an effect whose performer failed."""

    def answer(self, answer: Event) -> None:  # noqa: D102
        if getattr(answer, "kind", "") != "internal":
            super().answer(answer)


class SleepsThrough(Loop):
    """It does not take up what was in flight when the engine is opened again."""

    def take_over(self) -> None:  # noqa: D102
        pass


class ForgetsTools(Loop):
    """It takes up what was in flight, and does not say which tools were running."""

    def take_over(self) -> None:  # noqa: D102
        for report in reports(self.state, self._clock.now()):
            if isinstance(report, Resumed):
                self._mailbox.post(report)


class RunsAllAgain(Loop):
    """Whatever a tool's contract is, it starts the tool again."""

    def take_over(self) -> None:  # noqa: D102
        super().take_over()
        round_ = getattr(self.state, "round", None)
        again = (
            [ExecuteTool(effect_id=one.effect_id, call=round_.call(one.effect_id)) for one in round_.running]
            if round_
            else []
        )
        self._dispatch(again)


PLANTED = (
    StartsTwice,
    TakesAnyAnswer,
    DropsAnswers,
    GivesUpOnTheDisk,
    PerformsFirst,
    RunsAhead,
    ShowsFirst,
    PromisesFirst,
    ForgetsRequests,
    TakesAnotherForTheSame,
    TellsTooFew,
    ShowsTooLittle,
    SwallowsFailures,
    SleepsThrough,
    ForgetsTools,
    RunsAllAgain,
)
