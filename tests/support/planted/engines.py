"""Engines with one fault each, for simulations that must find it.

A faulty store, dispatcher or performer is handed in; a faulty part of a loop takes the place of a public name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from turnwise import Engine
from turnwise.effects.channels.port import Channel, Delivery
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine import loop
from turnwise.engine.custody import Custody
from turnwise.engine.recovery import Recovery, reports
from turnwise.engine.updates import Update
from turnwise.engine.waiting import TurnWaiters
from turnwise.engine.watching import Feed
from turnwise.states import (
    Answer,
    Context,
    DeliverToUser,
    EffectFailed,
    Event,
    ExecuteTool,
    Failed,
    LogEntry,
    Report,
    Resumed,
    State,
    Step,
    ToolInterrupted,
    transition,
)

from . import stores
from .machines import takes_answers_by_their_type

Open = Callable[..., Engine]
"""Opens an engine, as `Engine.open` does."""


@dataclass(frozen=True)
class Fault:
    """A fault of an engine: a name, and what plants it and returns what opens such an engine."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], Open]


def _in_store(wrap: Callable[[Any], Any]) -> Fault:
    """An engine whose store has a fault."""

    def open_engine(*, store: Any, **options: Any) -> Engine:
        return Engine.open(store=wrap(store), **options)

    return Fault(wrap.__name__, lambda monkeypatch: open_engine)


def _in_log(kind: type[stores.WrappedLog]) -> Fault:
    """An engine whose logs have a fault."""
    fault = _in_store(lambda store: stores.WrappedStore(store, kind))
    return Fault(kind.__name__, fault.plant)


def _in_dispatcher(dispatcher: Callable[..., Any]) -> Fault:
    """An engine whose dispatcher has a fault."""
    return Fault(dispatcher.__name__, lambda monkeypatch: partial(Engine.open, dispatcher=dispatcher))


def _in_loop(part: str, faulty: Any) -> Fault:
    """An engine whose loops use a faulty part, in the place of one that they know by this public name."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> Open:
        monkeypatch.setattr(loop, part, faulty)
        return Engine.open

    return Fault(faulty.__name__, plant)


def _in_deliveries(sender: type[_FaultySender]) -> Fault:
    """An engine that delivers to its channels in a faulty way."""

    def open_engine(*, channels: list[Channel], performers: dict[Any, Any], **options: Any) -> Engine:
        return Engine.open(channels=channels, performers={**performers, DeliverToUser: sender(channels)}, **options)

    return Fault(sender.__name__, lambda monkeypatch: open_engine)


# --- dispatchers


class StartsTwice(InProcessDispatcher):
    """It carries out each effect twice."""

    async def perform(self, effect: Any, context: Any) -> Any:  # noqa: D102
        await super().perform(effect, context)
        return await super().perform(effect, context)


def drops_answers(performers: Any, clock: Any, answer: Callable[[str, Answer], None]) -> InProcessDispatcher:
    """It loses every seventh answer."""
    count = 0

    def drop(conversation_id: str, given: Answer) -> None:
        nonlocal count
        count += 1
        if count % 7:
            answer(conversation_id, given)

    return InProcessDispatcher(performers, clock, drop)


def swallows_failures(performers: Any, clock: Any, answer: Callable[[str, Answer], None]) -> InProcessDispatcher:
    """It says nothing when a performer fails."""

    def swallow(conversation_id: str, given: Answer) -> None:
        if not (isinstance(given, EffectFailed) and given.kind == "internal"):
            answer(conversation_id, given)

    return InProcessDispatcher(performers, clock, swallow)


# --- parts of loops


def takes_no_tool_for_harmful(state: State, event: Event, context: Context) -> Step:
    """Whatever the contract of an interrupted tool is, it runs again."""
    round_ = getattr(state, "round", None)
    if not isinstance(event, ToolInterrupted) or round_ is None:
        return transition(state, event, context)
    harmless = round_.replace(calls=tuple(call.replace(crash="pure") for call in round_.calls))
    step = transition(state.replace(round=harmless), event, context)
    calls = {call.call_id: call for call in round_.calls}
    effects = (
        effect.replace(call=calls[effect.call.call_id]) if isinstance(effect, ExecuteTool) else effect
        for effect in step.effects
    )
    after = getattr(step.state, "round", None)
    rests = step.state if after is None else step.state.replace(round=after.replace(calls=round_.calls))
    return replace(step, state=rests, effects=tuple(effects))


def forgets_tools(state: State, at: Any, left: frozenset[int], **options: Any) -> Iterator[Report]:
    """It takes over what was in flight, and does not say which tools were running."""
    return (report for report in reports(state, at, left, **options) if isinstance(report, Resumed))


class NotifiesTooFew(TurnWaiters):
    """It forgets who waits for a turn that fails."""

    def __init__(self, projection: Any, follower: Any) -> None:
        super().__init__(projection, follower)
        self.projection = projection

    def notify(self, entry: LogEntry) -> None:  # noqa: D102
        if not isinstance(self.projection.state, Failed):
            super().notify(entry)


class ShowsTooLittle(Feed):
    """It shows the last update of each step, and not those before it."""

    def publish(self, *updates: Update) -> None:  # noqa: D102
        super().publish(*updates[-1:])


class ForgetsStreamedText(Feed):
    """A watcher that begins in the middle of an answer does not get its beginning."""

    def publish(self, *updates: Update) -> None:  # noqa: D102
        super().publish(*updates)
        self.streamed.clear()


# --- deliveries


class _FaultySender:
    """Delivers to channels as a subclass would have it."""

    def __init__(self, channels: list[Channel]) -> None:
        self.channels = channels

    def targets_of(self, effect: DeliverToUser) -> list[str]:
        """The names of the channels."""
        return [channel.name for channel in self.channels]

    async def __call__(self, effect: DeliverToUser, context: Any) -> None:
        """Deliver to each channel."""
        text = await context.words(effect.said)
        key = context.key(effect.effect_id)
        delivery = Delivery(text, context.conversation_id, turn=effect.turn, ordinal=effect.ordinal, key=key)
        for channel in self.channels:
            await self.deliver(channel, delivery, effect, context)

    async def deliver(self, channel: Channel, delivery: Delivery, effect: DeliverToUser, context: Any) -> None:
        """Deliver to one channel."""
        raise NotImplementedError


async def _is_taken(channel: Channel, delivery: Delivery) -> bool:
    try:
        await asyncio.wait_for(channel.deliver(delivery), 2.0)
    except Exception:
        return False
    return True


class GivesUp(_FaultySender):
    """It tries once."""

    async def deliver(self, channel: Channel, delivery: Delivery, effect: DeliverToUser, context: Any) -> None:  # noqa: D102
        await _is_taken(channel, delivery)
        context.receipts.acknowledge(effect.effect_id, channel.name)


class DeliversOutOfOrder(_FaultySender):
    """What cannot be delivered makes room for what comes behind it."""

    async def deliver(self, channel: Channel, delivery: Delivery, effect: DeliverToUser, context: Any) -> None:  # noqa: D102
        if await _is_taken(channel, delivery):
            context.receipts.acknowledge(effect.effect_id, channel.name)


class AcknowledgesFirst(_FaultySender):
    """It notes the arrival before it delivers."""

    async def deliver(self, channel: Channel, delivery: Delivery, effect: DeliverToUser, context: Any) -> None:  # noqa: D102
        context.receipts.acknowledge(effect.effect_id, channel.name)
        for _ in range(20):
            if await _is_taken(channel, delivery):
                return


FAULTS = (
    _in_dispatcher(StartsTwice),
    _in_dispatcher(drops_answers),
    _in_dispatcher(swallows_failures),
    _in_loop("transition", takes_answers_by_their_type),
    _in_loop("transition", takes_no_tool_for_harmful),
    _in_loop("reports", forgets_tools),
    _in_loop("TurnWaiters", NotifiesTooFew),
    _in_loop("Feed", ShowsTooLittle),
    _in_loop("Feed", ForgetsStreamedText),
    _in_log(stores.StoresLater),
    _in_log(stores.DropsSteps),
    _in_log(stores.HidesFailures),
    _in_log(stores.RefusesAnswers),
    _in_log(stores.ReportsFailures),
    _in_log(stores.ForgetsRequests),
    _in_store(stores.LeavesWorkBehind),
    _in_store(stores.HidesTheNewestStep),
)
"""Faults that a simulation with one engine finds."""

CONFLICT_FAULTS = (
    _in_log(stores.SeesNobodyElse),
    _in_log(stores.SkipsSteps),
    _in_log(stores.OverwritesOthers),
)
"""Faults that only a simulation with two engines finds."""


def _in_custody(name: str, faulty: Any, where: type[Any] = Custody) -> Fault:
    """An engine over a shared store whose custody, or loops, have a faulty method of this name."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> Open:
        monkeypatch.setattr(where, name, faulty)
        return Engine.open

    return Fault(faulty.__name__, plant)


note_step = Custody.note_step


def performs_what_it_stored(self: Custody, conversation_id: str, by_others: LogEntry | None) -> bool:
    """It carries out the steps that it stored itself, as without custody, and none of others."""
    note_step(self, conversation_id, by_others)
    return by_others is None


async def confirms_nothing(self: Custody, conversation_id: str) -> None:
    """It touches the world although it may have lost the custody."""


def rests_too_soon(self: loop.Loop, until: Any) -> bool:
    """It lets go of conversations in the middle of a turn."""
    return True


def never_rests(self: loop.Loop, until: Any) -> bool:
    """It lets go of nothing."""
    return False


async def begins_nothing(self: loop.Loop, after: int, begin: Callable[[], None]) -> None:
    """It leaves alone what other processes have asked for."""
    begin()


async def forgets_what_was_left(self: Any, loop: Any) -> None:
    """It reports nothing of what a dead process has left."""


async def forgets_the_outbox(self: Any, loop: Any) -> None:
    """It does not go on with what was said."""


CUSTODY_FAULTS = (
    _in_custody("note_step", performs_what_it_stored),
    _in_custody("confirm", confirms_nothing),
    _in_log(stores.StoresWithoutCustody),
    _in_custody("rests", rests_too_soon, loop.Loop),
    _in_custody("rests", never_rests, loop.Loop),
    _in_custody("begin", begins_nothing, loop.Loop),
    _in_custody("go_on", forgets_what_was_left, Recovery),
    _in_custody("resume_outbox", forgets_the_outbox, Recovery),
)
"""Faults that only a simulation with several processes finds."""

FILE_FAULTS = (
    _in_log(stores.StoresLater),
    _in_log(stores.DropsSteps),
    _in_log(stores.HidesFailures),
    _in_log(stores.ForgetsDeliveries),
    _in_log(stores.LosesReceipts),
    _in_log(stores.KeepsTheNewestReceipt),
    _in_store(stores.ForgetsTheOutbox),
    _in_store(stores.ReadsTheOutboxBackwards),
    _in_deliveries(GivesUp),
    _in_deliveries(DeliversOutOfOrder),
    _in_deliveries(AcknowledgesFirst),
)
"""Faults that a simulation over a file finds."""
