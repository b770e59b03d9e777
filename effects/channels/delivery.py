"""Delivers what is said to the user, through every channel, each of which has a retry queue for each conversation.

A delivery that a channel does not take is tried again, and those behind it wait, so that people receive them in the
order in which they were said. Other channels, and the conversation itself, go on meanwhile.

A channel may be code of the application: it may raise, hang, refuse to stop or cancel itself. So each attempt runs in
a task of its own, which can be abandoned, and takes a bounded time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from ...states.effects import DELIVERY_DEATHS, DeliverToUser
from ...states.errors import ConfigurationError
from ...states.events import Event
from ...states.replies import text_of_delivery
from ...states.states import State
from ...states.step import Step
from ...states.values.value import encodable
from ..application_functions import pass_on_interrupt
from ..clock import Clock
from ..context import EffectContext, Receipts
from ..logs import performer_logger
from ..printable import printable
from ..retry_queues import Admit, Earlier, Left, PendingEffect, RetryQueues
from .port import Channel, Delivery, NotTaken, SpeechListener, TurnEndListener
from .written_speech import WrittenSpeeches

logger: Final = performer_logger("turnwise.channels")

ATTEMPT_TIMEOUT = 2.0
"""Seconds that one attempt may take. A tool that starts behind a delivery waits at most that long, and `GRACE`."""

GRACE = 0.5
"""Seconds that a cancelled attempt gets to clean up before it is abandoned, so that a tool behind it soon starts."""

LEFT_OUT = "The channel {} ended the program at each attempt to deliver this. It is left out."
"""What is told of a delivery in which too many processes have died."""


class DeliveryPerformer:
    """Carries out `DeliverToUser`. No state awaits that effect; the performer returns after the first attempts."""

    def __init__(self, deliveries: DeliveryDispatcher) -> None:
        self._deliveries = deliveries

    def targets_of(self, effect: DeliverToUser) -> tuple[str, ...]:
        """The names of the channels, under which the outbox stores each delivery."""
        return self._deliveries.targets

    async def __call__(self, effect: DeliverToUser, context: EffectContext) -> None:
        """Try every channel once. A channel that fails does not delay the others; it is reported, and tried again."""
        targets = self.targets_of(effect)
        deliveries = [(target, await _make_pending_delivery(effect, context, target)) for target in targets]
        await self._deliveries.submit(deliveries)

    async def resume(
        self, effect: DeliverToUser, context: EffectContext, target: str, attempts: int, due: datetime | None
    ) -> bool:
        """Hand a delivery that an earlier process left to its channel. Returns false if there is no such channel.

        One in which too many processes have died is left out, and reported. It stays in the outbox.
        """
        if target not in self.targets_of(effect):
            return False
        pending = await _make_pending_delivery(effect, context, target, attempts, due)
        if context.begun < DELIVERY_DEATHS:
            self._deliveries.resume(target, replace(pending, begun=context.begun))
        else:
            logger.warning("The conversation %s: %s", context.conversation_id, LEFT_OUT.format(target))
            pending.report(LEFT_OUT.format(target))
        return True


async def _make_pending_delivery(
    effect: DeliverToUser, context: EffectContext, target: str, attempts: int = 0, due: datetime | None = None
) -> _PendingDelivery:
    """The delivery for this channel. `attempts` are those that have failed, and the next one is made when it is `due`;
    None means at once."""
    delivery = Delivery(
        text=text_of_delivery(await context.words(effect.said), context.policy, relayed=effect.relayed),
        conversation_id=context.conversation_id,
        turn=effect.turn,
        ordinal=effect.ordinal,
        key=context.key(effect.effect_id),
        origin=await context.origin(effect.said),
    )
    report = partial(_report, context, effect.effect_id, delivery, target)
    return _PendingDelivery(delivery, effect.effect_id, context.receipts, report, attempts, due)


def _report(context: EffectContext, effect_id: int, delivery: Delivery, target: str, fault: str | None) -> None:
    data = {"key": delivery.key, "channel": target, "turn": delivery.turn, "ordinal": delivery.ordinal}
    if fault is None:
        context.progress(effect_id, "delivered", data)
    else:
        context.progress(effect_id, "delivery_failed", {**data, "sentence": fault})


if TYPE_CHECKING:
    from ..dispatcher import Sender
    from ..retry_queues import Resumable

    _FILLS: tuple[type[Sender], type[Resumable]] = (DeliveryPerformer, DeliveryPerformer)

Attempt = Callable[[Channel, Delivery], Awaitable[str | None]]
"""Makes one attempt. Returns None if the channel has taken the delivery, otherwise a sentence that says why not."""

CLOSING_TIMEOUT = ATTEMPT_TIMEOUT + GRACE
"""Seconds that deliveries which were never tried get when the engine closes: as long as one attempt takes at most."""


@dataclass(frozen=True)
class _PendingDelivery:
    """A delivery on its way to one channel.

    `report` is called after each attempt with the reason why it failed, or None if the channel has taken the delivery.
    `attempts` are those that failed, and `due` is when the next one is made. `begun` counts the processes that have
    died in an attempt at what is taken from the outbox; it is None for what is not.
    """

    delivery: Delivery
    effect_id: int
    receipts: Receipts
    report: Callable[[str | None], None]
    attempts: int = 0
    due: datetime | None = None
    begun: int | None = None


class DeliveryDispatcher:
    """The queues of all conversations, one for each channel. `make_attempt` replaces `attempt`, `earlier` finds what
    other engines have yet to deliver, and `admit` is awaited before each attempt.

    Raises `ConfigurationError` for objects that are not channels, and for two channels of one name.
    """

    def __init__(
        self,
        channels: Iterable[Channel],
        clock: Clock,
        make_attempt: Attempt | None = None,
        earlier: Earlier | None = None,
        admit: Admit | None = None,
    ) -> None:
        self._channels = _by_name(channels)
        self.listeners: list[TurnEndListener] = [
            one for one in self._channels.values() if isinstance(one, TurnEndListener)
        ]
        """The channels that are told how turns end."""
        listening = [one for one in self._channels.values() if isinstance(one, SpeechListener)]
        self.written: WrittenSpeeches | None = WrittenSpeeches(listening) if listening else None
        """What tells channels of the speech that models write; None if none wants to know."""
        self._make_attempt = make_attempt
        self.queues: RetryQueues = RetryQueues(clock, earlier, admit)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the channels. Each delivery goes to all of them."""
        return tuple(self._channels)

    @property
    def left(self) -> Set[Left]:
        """What had not arrived when the deliveries were stopped."""
        return self.queues.left

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """Tell the channels that listen if a turn ended with this step, and what it means for the speech that a model
        was writing; every error of a channel is logged.

        A channel alone cannot know whether more will be said in a turn. One that speaks needs to, because an assistant
        begins to listen again when everything was spoken.
        """
        if self.written is not None:
            self.written.stepped(conversation_id, event, step)
        if step.ended is None:
            return
        for listener in self.listeners:
            try:
                listener.turn_ended(conversation_id, step.ended)
            except BaseException:  # nothing here waits, so it is the channel's own, and must not end the event loop
                logger.warning("A channel failed at the end of a turn.", exc_info=True)

    def picked_up(self, conversation_id: str, state: State) -> None:
        """The conversation goes on here. What its model has written in another process was spoken there."""

    def let_go(self, conversation_id: str) -> None:
        """Another process goes on with the conversation, and has its answer written once more."""
        if self.written is not None:
            self.written.drop(conversation_id)

    async def submit(self, deliveries: Iterable[tuple[str, _PendingDelivery]]) -> None:
        """Queue each delivery for the channel named beside it, and return when each was tried once, or waits behind one
        that has failed."""
        await self.queues.submit([self._effect(target, pending) for target, pending in deliveries])

    def resume(self, target: str, pending: _PendingDelivery) -> None:
        """Queue a delivery that an earlier process left in the outbox. Does not wait."""
        self.queues.resume(self._effect(target, pending))

    async def drop(self, conversation_id: str) -> None:
        """Stop delivering for this conversation."""
        self.let_go(conversation_id)
        await self.queues.drop(conversation_id)

    async def wait_until_tried(self) -> None:
        """Return when each queued delivery was tried once, by this process or an earlier one, or waits behind one that
        has failed."""
        await self.queues.wait_until_tried()

    async def stop(self) -> None:
        """Stop delivering, once each delivery was tried. Those that have not arrived stay in the outbox."""
        await self.queues.stop(CLOSING_TIMEOUT)

    def _effect(self, target: str, pending: _PendingDelivery) -> PendingEffect:
        return PendingEffect(
            pending.delivery.conversation_id,
            pending.effect_id,
            target,
            pending.receipts,
            partial(self._try, target, pending.delivery),
            pending.report,
            pending.attempts,
            pending.due,
            pending.begun,
        )

    async def _try(self, target: str, delivery: Delivery) -> str | None:
        return await (self._make_attempt or attempt)(self._channels[target], delivery)


def _by_name(channels: Iterable[Channel]) -> dict[str, Channel]:
    by_name: dict[str, Channel] = {}
    for channel in channels:
        name = _name_of(channel)
        if name in by_name:
            raise ConfigurationError("Two channels have the same name.")
        by_name[name] = channel
    return by_name


def _name_of(channel: object) -> str:
    """The name of the channel, which is read only once: the outbox stores deliveries under it."""
    if isinstance(channel, type) or not isinstance(channel, Channel) or not isinstance(name := channel.name, str):
        raise ConfigurationError("A channel is an object with a name and the method `deliver`.")
    if encodable(name) != name:
        raise ConfigurationError("The name of a channel holds half a character (a lone surrogate).")
    return name


async def attempt(channel: Channel, delivery: Delivery) -> str | None:
    """Try once. Returns None if the channel has taken the delivery, otherwise a sentence that says why not."""
    task = asyncio.ensure_future(_error_of(channel, delivery))
    try:
        await asyncio.wait({task}, timeout=ATTEMPT_TIMEOUT)
        is_in_time = task.done()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
    # A channel may return while a cancel that it requested itself is still pending. Then its task was cancelled.
    error = task.result() if task.done() and not task.cancelled() else asyncio.CancelledError()
    if error is None:
        return None
    if not is_in_time:
        return f"The channel {channel.name} did not take a delivery within {ATTEMPT_TIMEOUT:g} s."
    if isinstance(error, NotTaken) and (reason := _sentence_of(error)):
        return reason
    logger.warning("The channel %s failed on a delivery.", channel.name, exc_info=error)
    return f"The channel {channel.name} failed on a delivery."


async def _error_of(channel: Channel, delivery: Delivery) -> BaseException | None:
    """The error that the channel raised, or None. Every error is caught: it must not end the event loop."""
    try:
        result: object = channel.deliver(delivery)
        if inspect.isawaitable(result):  # a plain function that has returned has delivered, whatever its types say
            await result
    except BaseException as error:
        pass_on_interrupt(error)
        return error
    return None


def _sentence_of(error: NotTaken) -> str:
    """The message of the error on one line; empty if it has none that can be read."""
    try:
        return " ".join(printable(encodable(str(error))).split())
    except Exception:
        return ""
