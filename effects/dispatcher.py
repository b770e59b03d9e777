"""The dispatcher in this process: it starts the effects of committed steps as tasks of the event loop.

A dispatcher receives effects only after their step is stored. Each outcome returns as an event. One awaited effect
gives exactly one answer: the answer of its performer, an acknowledgement if a tool or a sub-agent was stopped, or
`EffectFailed` if the performer failed or there is none. Other effects that are aborted are no longer awaited and give
no answer.

A delivery's first attempt ends before a tool starts that was asked for after it, so that what is said before a tool
runs is heard before it runs. Model requests do not wait for deliveries. The conversation handles events meanwhile, and
an effect that is aborted before its turn never starts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from ..states.effects import AwaitedEffect, Effect, OutgoingEffect
from ..states.errors import StoreError
from ..states.events import Answer, EffectFailed, exact
from ..states.values.failures import FailureKind
from .clock import Clock
from .context import EffectContext
from .logs import performer_logger, redacting

logger = performer_logger("turnwise.dispatcher")

Performer = Callable[[Any, EffectContext], Awaitable[Answer | None]]
"""Carries out one kind of effect, and returns the answer if the effect is awaited. It must end by itself, so it keeps a
deadline. A performer of outgoing effects is a `Sender` if they are to survive a crash; another one tries them once."""

CLOSING_GRACE = 1.5
"""Seconds that running effects get to stop when a conversation closes: more than a tool gets to clean up."""

SENDING_GRACE = 5.0
"""Seconds that deliveries get for their first attempt when a conversation closes: enough for a few attempts, or for two
that hang."""

BROKEN = "Something broke inside the program that runs this conversation."
"""The failure of an effect whose performer raised an error that is not for people."""


@runtime_checkable
class Sender(Protocol):
    """The performer of an effect that nobody awaits and that must arrive all the same.

    The effect is stored in the outbox for each of the `targets`, in the transaction of its step, and stays there until
    the sender acknowledges that target in the `receipts` of the context.
    """

    @property
    def targets(self) -> Sequence[str]:
        """The names of those whom each effect must reach. If there are none, nothing is stored and nothing done."""
        ...

    async def __call__(self, effect: Any, context: EffectContext) -> None:
        """Try each target once, and return. Further attempts go on in the background."""
        ...


class InProcessDispatcher:
    """Carries out effects as tasks of the running event loop.

    `answer(conversation_id, answer)` takes the answers of awaited effects. It is called from the event loop.
    """

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        answer: Callable[[str, Answer], None],
    ) -> None:
        self._performers = performers
        self._senders = {kind: one for kind, one in performers.items() if isinstance(one, Sender)}
        self._answers = _AnswerSender(clock, answer)
        self._conversations: dict[str, _ConversationEffects] = {}

    async def perform(self, effect: Any, context: EffectContext) -> Answer | None:
        """Carry out one effect, and return its answer. Every effect that is started goes through here."""
        try:
            with redacting(context.redact):
                return await self._performers[type(effect)](effect, context)
        except (SystemExit, KeyboardInterrupt) as error:
            # asyncio would let these out of its event loop and end the process.
            raise RuntimeError("a performer tried to end the process") from error

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start the effects of a committed step, in order. Effects that concern only the log are passed over."""
        if any(isinstance(effect, AwaitedEffect | OutgoingEffect) for effect in effects):
            conversation = self._conversation(context.conversation_id)
            for effect in effects:
                self._dispatch(effect, context, conversation)
            conversation.start_next()
            self._forget_if_idle(context.conversation_id)

    def _dispatch(self, effect: Effect, context: EffectContext, conversation: _ConversationEffects) -> None:
        performer = self._performers.get(type(effect))
        if isinstance(effect, OutgoingEffect):
            if performer is None:
                logger.error("There is no performer for %s, so it is lost.", effect.type)
            elif (sender := self._senders.get(type(effect))) is None or sender.targets:
                conversation.enqueue(effect, context)
        elif isinstance(effect, AwaitedEffect):
            if performer is None:
                self._answers.send_unavailable(effect, context)
            elif effect.AFTER_DELIVERIES:
                conversation.enqueue(effect, context)
            else:
                conversation.start(effect, context)

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Stop an effect. One that has not started yet is dropped; one that is unknown or has ended is passed over."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            conversation.abort(effect_id)
            self._forget_if_idle(conversation_id)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Return when every outgoing effect so far was tried once, of this conversation or of all."""
        if conversation_id is None:
            await asyncio.gather(*(conversation.wait_until_tried() for conversation in self._conversations.values()))
        elif (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.wait_until_tried()

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Tell the running effects of a conversation to stop, and drop those that have not started, except outgoing
        ones. Return when they have stopped, or after `CLOSING_GRACE`.

        An effect that finishes all the same is answered, unless `answers` is false; the others are left as in a crash.
        """
        if (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.stop(answers=answers)
            self._forget_if_idle(conversation_id)

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Stop sending for a conversation: once its outgoing effects so far were tried, or after `SENDING_GRACE`; at
        once unless `deliver`. To be called after `stop`."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.release(deliver=deliver)
            self._forget_if_idle(conversation_id)

    def _conversation(self, conversation_id: str) -> _ConversationEffects:
        conversation = self._conversations.get(conversation_id)
        if conversation is None:
            forget = partial(self._forget_if_idle, conversation_id)
            conversation = _ConversationEffects(self.perform, self._answers, forget)
            self._conversations[conversation_id] = conversation
        return conversation

    def _forget_if_idle(self, conversation_id: str) -> None:
        conversation = self._conversations.get(conversation_id)
        if conversation is not None and conversation.is_idle:
            del self._conversations[conversation_id]


class _AnswerSender:
    """Sends the answers of performers, and the answers that stand for a missing or failed performer."""

    def __init__(self, clock: Clock, answer: Callable[[str, Answer], None]) -> None:
        self._clock = clock
        self._answer = answer

    def send_result(self, effect: Any, context: EffectContext, answer: Answer | None) -> None:
        """Send what a performer has returned. If no log can hold it, the performer has failed."""
        try:
            if answer is None:
                raise ValueError("an awaited effect was left without an answer")
            stored = exact(answer)
            if not isinstance(stored, effect.answers) or stored.effect_id != effect.effect_id:
                raise ValueError(f"{effect.type} cannot be answered with this {stored.type}")
        except ValueError as error:
            self.send_failure(effect, context, error)
        else:
            self._answer(context.conversation_id, stored)

    def send_failure(self, effect: Any, context: EffectContext, error: BaseException | None) -> None:
        """Send the failure of a performer, or of a log that it could not read."""
        with redacting(context.redact):
            logger.error("A performer failed on %s.", effect.type, exc_info=error)
        sentence = error.sentence if isinstance(error, StoreError) else BROKEN
        self._fail(effect, context, "internal", sentence)

    def send_unavailable(self, effect: Any, context: EffectContext) -> None:
        """Send the failure of an effect that has no performer."""
        wanted = effect.type.replace("_", " ")
        sentence = f"The program that runs this conversation has nothing for this: {wanted}."
        self._fail(effect, context, "unavailable", sentence)

    def send_acknowledgement(self, effect: AwaitedEffect, context: EffectContext) -> None:
        """Send the acknowledgement of an effect that was stopped, if its conversation waits for one."""
        acknowledgement = effect.acknowledgement(effect.effect_id, self._clock.now())
        if acknowledgement is not None:
            self._answer(context.conversation_id, acknowledgement)

    def _fail(self, effect: Any, context: EffectContext, kind: FailureKind, sentence: str) -> None:
        failed = EffectFailed(effect_id=effect.effect_id, at=self._clock.now(), kind=kind, sentence=sentence)
        self._answer(context.conversation_id, failed)


@dataclass(eq=False)
class _Queued:
    """An effect that waits for its turn."""

    effect: Any
    context: EffectContext


@dataclass(eq=False)
class _Running:
    """An effect that was started, and whether somebody has aborted it, or its conversation closes."""

    queued: _Queued
    task: asyncio.Task[Answer | None]
    is_aborted: bool = False
    is_stopping: bool = False


class _ConversationEffects:
    """The effects of one conversation that wait or run. `when_idle` is called whenever there may be none left."""

    def __init__(self, perform: Performer, answers: _AnswerSender, when_idle: Callable[[], None]) -> None:
        self._perform = perform
        self._answers = answers
        self._when_idle = when_idle
        self._queue: deque[_Queued] = deque()
        self._sending: _Running | None = None
        self._running: dict[int, _Running] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._queue and self._sending is None and not self._running

    # --- starting

    def enqueue(self, effect: Effect, context: EffectContext) -> None:
        """Start the effect once everything that was said before it has been tried."""
        self._queue.append(_Queued(effect, context))

    def start_next(self) -> None:
        """Start what waits, up to the next delivery that has to be tried first."""
        while self._queue and self._sending is None:
            queued = self._queue.popleft()
            if isinstance(queued.effect, OutgoingEffect):
                self._sending = self._begin(queued, self._sent)
            else:
                self.start(queued.effect, queued.context)

    def start(self, effect: Any, context: EffectContext) -> None:
        """Start an awaited effect."""
        self._running[effect.effect_id] = self._begin(_Queued(effect, context), self._finished)

    def _begin(self, queued: _Queued, then: Callable[[_Running], None]) -> _Running:
        running = _Running(queued, asyncio.ensure_future(self._perform(queued.effect, queued.context)))
        running.task.add_done_callback(lambda _: then(running))
        return running

    # --- ending

    def abort(self, effect_id: int) -> None:
        """Stop an effect, or drop it if it has not started."""
        if (running := self._running.get(effect_id)) is not None:
            running.is_aborted = True
            running.task.cancel()
            return
        for queued in self._queue:
            if isinstance(queued.effect, AwaitedEffect) and queued.effect.effect_id == effect_id:
                self._queue.remove(queued)
                self._answers.send_acknowledgement(queued.effect, queued.context)
                return

    def _finished(self, running: _Running) -> None:
        """Hand in the answer of an awaited effect. Called for a task that was cancelled before it began, too."""
        # Retrieved in any case: asyncio reports an exception that nobody has retrieved.
        error = None if running.task.cancelled() else running.task.exception()
        effect, context = running.queued.effect, running.queued.context
        if self._running.get(effect.effect_id) is not running:
            return
        del self._running[effect.effect_id]
        if not running.task.cancelled() and error is None:
            self._answers.send_result(effect, context, running.task.result())
        elif running.is_stopping:
            pass  # the answer is lost, as in a crash
        elif running.task.cancelled() and running.is_aborted:
            self._answers.send_acknowledgement(effect, context)
        else:
            # Also a performer that nobody here cancelled: a library's own cancellation has leaked out of it.
            self._answers.send_failure(effect, context, error)
        self._when_idle()

    def _sent(self, running: _Running) -> None:
        """Go on behind a delivery that was tried."""
        if not running.task.cancelled() and running.task.exception() is not None:
            effect, error = running.queued.effect, running.task.exception()
            with redacting(running.queued.context.redact):
                logger.error("A performer failed on %s, which nobody awaits.", effect.type, exc_info=error)
        self._sending = None
        self.start_next()
        self._when_idle()

    def _to_send(self) -> list[_Queued]:
        sending = [] if self._sending is None else [self._sending.queued]
        return sending + [queued for queued in self._queue if isinstance(queued.effect, OutgoingEffect)]

    async def wait_until_tried(self) -> None:
        """Return when every outgoing effect so far was tried once."""
        so_far = self._to_send()
        while self._sending is not None and any(queued in so_far for queued in self._to_send()):
            await asyncio.wait([self._sending.task])

    async def stop(self, *, answers: bool) -> None:
        """See `InProcessDispatcher.stop`."""
        self._queue = deque(queued for queued in self._queue if isinstance(queued.effect, OutgoingEffect))
        stopping = dict(self._running)
        if not answers:
            self._running.clear()
        for running in stopping.values():
            running.is_stopping = True
            running.task.cancel()
        if stopping:
            await asyncio.wait([running.task for running in stopping.values()], timeout=CLOSING_GRACE)
        for effect_id, running in stopping.items():
            if self._running.get(effect_id) is running:
                del self._running[effect_id]

    async def release(self, *, deliver: bool) -> None:
        """See `InProcessDispatcher.release`."""
        so_far = self._to_send()
        if deliver:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wait_until_tried(), SENDING_GRACE)
        self._queue = deque(queued for queued in self._queue if queued not in so_far)
        if self._sending is not None and self._sending.queued in so_far:
            task = self._sending.task
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING_GRACE)
