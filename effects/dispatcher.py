"""The dispatcher in this process: it starts the effects of committed steps as tasks of the event loop.

A dispatcher receives effects only after their step is stored. Each outcome returns as an event. One awaited effect
gives exactly one answer: the answer of its performer, an acknowledgement if a tool or a sub-agent was stopped, or
`EffectFailed` if the performer failed or there is none. Other effects that are aborted are no longer awaited and give
no answer.

A delivery's first attempt ends before a tool starts that was asked for after it, so that what is said before a tool
runs is heard before it runs. Model requests do not wait for deliveries. The conversation handles events meanwhile,
and an effect that is aborted before its turn never starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from ..states.effects import OUTGOING, AwaitedEffect, Effect, OutgoingEffect
from ..states.errors import InvalidInput, StoreError
from ..states.events import Answer, EffectFailed
from ..states.values.value import FailureKind
from .application_functions import pass_on_interrupt
from .clock import Clock
from .context import EffectContext, unchanged
from .logs import performer_logger, redacting

logger: Final = performer_logger("turnwise.dispatcher")

Performer = Callable[[Any, EffectContext], Awaitable[Answer | None]]
"""Carries out one kind of effect, and returns the answer if the effect is awaited. It must end by itself, so it keeps a
deadline. If its task is cancelled, it may return the answer that acknowledges this, with what had come by then. A
performer of outgoing effects is a `Sender` if they are to survive a crash; another one tries them once."""


class InProcessDispatcher:
    """Carries out effects as tasks of the running event loop.

    `answer(conversation_id, answer)` takes the answers of awaited effects. It is called from the event loop. If it
    raises `InvalidInput` for the answer of a performer, as `Engine.answer` does, the performer has failed.
    """

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        answer: Callable[[str, Answer], None],
    ) -> None:
        self._performers = performers
        self._senders = senders_of(performers)
        self._clock = clock
        self._answer = answer
        self._conversations: dict[str, _ConversationEffects] = {}

    async def perform(self, effect: Any, context: EffectContext) -> Answer | None:
        """Carry out one effect, and return its answer. Every effect that is started goes through here."""
        try:
            if context.redact is unchanged:
                return await self._performers[type(effect)](effect, context)
            with redacting(context.redact):
                return await self._performers[type(effect)](effect, context)
        except (SystemExit, KeyboardInterrupt) as error:
            pass_on_interrupt(error)
            raise RuntimeError(_ENDS_PROCESS) from error

    def aborting(self, effect: Any, context: EffectContext) -> _Telling | None:
        """Return what tells the performer of this effect to stop it; None if the performer is to be cancelled."""
        performer = self._performers[type(effect)]
        return partial(_abort, performer, effect, context) if isinstance(performer, Abortable) else None

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start the effects of a committed step, in order. Effects that concern only the log are passed over."""
        for effect in effects:
            if isinstance(effect, OutgoingEffect):
                self._send(effect, context)
            elif isinstance(effect, AwaitedEffect):
                self._start(effect, context)
        if (conversation := self._conversations.get(context.conversation_id)) is not None:
            conversation.start_next()

    def _send(self, effect: OutgoingEffect, context: EffectContext) -> None:
        if type(effect) not in self._performers:
            logger.error("There is no performer for %s, so it is lost.", effect.type)
        elif (sender := self._senders.get(type(effect))) is None or sender.targets_of(effect):
            self._conversation(context.conversation_id).enqueue(effect, context)

    def _start(self, effect: AwaitedEffect, context: EffectContext) -> None:
        if type(effect) not in self._performers:
            self._send_unavailable(effect, context)
        elif effect.AFTER_DELIVERIES:
            self._conversation(context.conversation_id).enqueue(effect, context)
        else:
            self._conversation(context.conversation_id).start(effect, context)

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Stop an effect. One that has not started yet is dropped; one that is unknown or has ended is passed over."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            conversation.abort(effect_id)
            self.forget_if_idle(conversation_id)

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
            self.forget_if_idle(conversation_id)

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Stop sending for a conversation: once its outgoing effects so far were tried, or after `SENDING_GRACE`; at
        once unless `deliver`. To be called after `stop`."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.release(deliver=deliver)
            self.forget_if_idle(conversation_id)

    def _conversation(self, conversation_id: str) -> _ConversationEffects:
        conversation = self._conversations.get(conversation_id)
        if conversation is None:
            conversation = _ConversationEffects(conversation_id, self)
            self._conversations[conversation_id] = conversation
        return conversation

    def forget_if_idle(self, conversation_id: str) -> None:
        """Forget the effects of this conversation if none waits or runs."""
        conversation = self._conversations.get(conversation_id)
        if conversation is not None and conversation.is_idle:
            del self._conversations[conversation_id]

    # --- answers

    def send_result(self, effect: Any, context: EffectContext, answer: Answer | None) -> None:
        """Send what a performer has returned. If it is no answer to its effect, or no log can hold it, the performer
        has failed."""
        if answer is None:
            self.send_failure(effect, context, ValueError("an awaited effect was left without an answer"))
        elif not _fits(effect, answer):
            fault = ValueError(f"{effect.type} cannot be answered with this {type(answer).__name__}")
            self.send_failure(effect, context, fault)
        else:
            try:
                self._answer(context.conversation_id, answer)
            except InvalidInput as error:
                self.send_failure(effect, context, error)

    def send_failure(self, effect: Any, context: EffectContext, error: BaseException | None) -> None:
        """Send the failure of a performer, or of a log that it could not read."""
        with redacting(context.redact):
            logger.error("A performer failed on %s.", effect.type, exc_info=error)
        sentence = error.sentence if isinstance(error, StoreError) else BROKEN
        self._fail(effect, context, "internal", sentence)

    def _send_unavailable(self, effect: Any, context: EffectContext) -> None:
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


async def _abort(performer: Abortable, effect: Any, context: EffectContext) -> None:
    try:
        with redacting(context.redact):
            await performer.abort(effect, context)
    except (SystemExit, KeyboardInterrupt) as error:
        pass_on_interrupt(error)
        raise RuntimeError(_ENDS_PROCESS) from error


CLOSING_GRACE = 1.5
"""Seconds that running effects get to stop when a conversation closes: more than a tool gets to clean up."""

SENDING_GRACE = 5.0
"""Seconds that deliveries get for their first attempt when a conversation closes: enough for a few attempts, or for two
that hang."""

_Telling: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Tells a performer to stop an effect, once it is called. A conversation may close before that, so it is no coroutine
yet: Python reports one that is never awaited."""


@dataclass(eq=False, slots=True)
class _DispatchedEffect:
    """An effect that waits for its turn, or that was started, and then has a `task`; and whether somebody has aborted
    it, or its conversation closes. `aborting` tells its performer to stop. It runs in the context variables in which it
    was dispatched, whatever starts it."""

    effect: Any
    context: EffectContext
    task: asyncio.Task[Answer | None] = field(init=False)
    then: Callable[[_DispatchedEffect], None] = field(init=False)
    aborting: asyncio.Task[None] | None = None
    is_aborted: bool = False
    is_stopping: bool = False
    variables: Variables = field(default_factory=copy_context)

    def begin(self, performing: Coroutine[Any, Any, Answer | None], then: Callable[[_DispatchedEffect], None]) -> None:
        """Start the task. `then` is called when it has ended, also if it was cancelled before it began."""
        self.then = then
        self.task = asyncio.get_running_loop().create_task(performing, context=self.variables)
        self.task.add_done_callback(self._has_ended, context=self.variables)

    def _has_ended(self, _: object) -> None:
        self.then(self)


class _ConversationEffects:
    """The effects of one conversation that wait or run."""

    __slots__ = ("_conversation_id", "_dispatcher", "_queue", "_running", "_sending")

    def __init__(self, conversation_id: str, dispatcher: InProcessDispatcher) -> None:
        self._conversation_id = conversation_id
        self._dispatcher = dispatcher
        self._queue: list[_DispatchedEffect] = []
        self._sending: _DispatchedEffect | None = None
        self._running: dict[int, _DispatchedEffect] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._queue and self._sending is None and not self._running

    # --- starting

    def enqueue(self, effect: Effect, context: EffectContext) -> None:
        """Start the effect once everything that was said before it has been tried."""
        if not self._is_known(effect):
            self._queue.append(_DispatchedEffect(effect, context))

    def start_next(self) -> None:
        """Start what waits, up to the next delivery that has to be tried first."""
        while self._queue and self._sending is None:
            queued = self._queue.pop(0)
            if isinstance(queued.effect, OutgoingEffect):
                self._sending = queued
                queued.begin(self._dispatcher.perform(queued.effect, queued.context), self._sent)
            else:
                self._run(queued)

    def start(self, effect: Any, context: EffectContext) -> None:
        """Start an awaited effect."""
        if not self._is_known(effect):
            self._run(_DispatchedEffect(effect, context))

    def _is_known(self, effect: Any) -> bool:
        """Whether this awaited effect runs or waits here already. A conversation that is taken over asks again for what
        is in flight, and another one may have made it move in the meantime."""
        if not isinstance(effect, AwaitedEffect) or self.is_idle:
            return False
        waiting = (queued.effect for queued in self._queue if isinstance(queued.effect, AwaitedEffect))
        return effect.effect_id in self._running or any(one.effect_id == effect.effect_id for one in waiting)

    def _run(self, dispatched: _DispatchedEffect) -> None:
        self._running[dispatched.effect.effect_id] = dispatched
        dispatched.begin(self._dispatcher.perform(dispatched.effect, dispatched.context), self._finished)

    # --- ending

    def abort(self, effect_id: int) -> None:
        """Stop an effect, or drop it if it has not started."""
        if (running := self._running.get(effect_id)) is not None:
            self._abort_running(running)
            return
        for queued in self._queue:
            if isinstance(queued.effect, AwaitedEffect) and queued.effect.effect_id == effect_id:
                self._queue.remove(queued)
                self._abort_queued(queued)
                return

    def _abort_running(self, running: _DispatchedEffect) -> None:
        if running.is_aborted:
            return
        running.is_aborted = True
        aborting = self._dispatcher.aborting(running.effect, running.context)
        if aborting is None:
            running.task.cancel()
        else:
            running.aborting = asyncio.ensure_future(self._tell(running, aborting))

    def _abort_queued(self, queued: _DispatchedEffect) -> None:
        """Drop an effect that has not started here. An earlier process may have started it, so the performer is told
        all the same; until it was, the effect counts as running."""
        effect = queued.effect
        aborting = self._dispatcher.aborting(effect, queued.context)
        if aborting is None:
            self._dispatcher.send_acknowledgement(effect, queued.context)
        else:
            self._running[effect.effect_id] = queued
            queued.is_aborted = True
            queued.begin(self._drop(queued, aborting), self._finished)

    async def _drop(self, queued: _DispatchedEffect, aborting: _Telling) -> None:
        """Tell the performer of an effect that never starts here. Its acknowledgement follows."""
        await self._has_told(queued, aborting)

    async def _tell(self, running: _DispatchedEffect, aborting: _Telling) -> None:
        """Tell the performer of a running effect. If that fails, the performer is cancelled."""
        if not await self._has_told(running, aborting):
            running.task.cancel()

    async def _has_told(self, queued: _DispatchedEffect, aborting: _Telling) -> bool:
        try:
            await aborting()
        except Exception:
            with redacting(queued.context.redact):
                logger.error("A performer failed to stop %s.", queued.effect.type, exc_info=True)
            return False
        return True

    def _finished(self, running: _DispatchedEffect) -> None:
        """Hand in the answer of an awaited effect. Called for a task that was cancelled before it began, too."""
        is_cancelled = running.task.cancelled()
        # Retrieved in any case: asyncio reports an exception that nobody has retrieved.
        error = None if is_cancelled else running.task.exception()
        effect, context = running.effect, running.context
        if self._running.get(effect.effect_id) is not running:
            return
        del self._running[effect.effect_id]
        answer = None if is_cancelled or error is not None else running.task.result()
        if running.is_stopping and not running.is_aborted and type(answer) is effect.ACKNOWLEDGES:
            answer = None  # nobody wants it stopped but this process, so it is asked for again
        if answer is not None:
            self._dispatcher.send_result(effect, context, answer)
        elif running.is_stopping:
            pass  # the answer is lost, as in a crash
        elif error is None and running.is_aborted:
            self._dispatcher.send_acknowledgement(effect, context)
        elif error is None and not is_cancelled:
            self._dispatcher.send_result(effect, context, None)
        else:
            # Also a performer that nobody here cancelled: a library's own cancellation has leaked out of it.
            self._dispatcher.send_failure(effect, context, error)
        self._dispatcher.forget_if_idle(self._conversation_id)

    def _sent(self, running: _DispatchedEffect) -> None:
        """Go on behind a delivery that was tried."""
        if not running.task.cancelled() and running.task.exception() is not None:
            effect, error = running.effect, running.task.exception()
            with redacting(running.context.redact):
                logger.error("A performer failed on %s, which nobody awaits.", effect.type, exc_info=error)
        self._sending = None
        self.start_next()
        self._dispatcher.forget_if_idle(self._conversation_id)

    def _to_send(self) -> list[_DispatchedEffect]:
        sending = [] if self._sending is None else [self._sending]
        return sending + [queued for queued in self._queue if isinstance(queued.effect, OutgoingEffect)]

    async def wait_until_tried(self) -> None:
        """Return when every outgoing effect so far was tried once."""
        so_far = self._to_send()
        while self._sending is not None and any(queued in so_far for queued in self._to_send()):
            await asyncio.wait([self._sending.task])

    async def stop(self, *, answers: bool) -> None:
        """Tell what runs to stop, and drop what waits, except outgoing effects. Return when it has stopped, or after
        `CLOSING_GRACE`. What finishes all the same is answered, unless `answers` is false."""
        self._queue = [queued for queued in self._queue if isinstance(queued.effect, OutgoingEffect)]
        stopping = dict(self._running)
        if not answers:
            self._running.clear()
        tasks: list[asyncio.Task[Any]] = []
        for running in stopping.values():
            running.is_stopping = True
            tasks += [running.task] if running.aborting is None else [running.task, running.aborting]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_GRACE)
        for effect_id, running in stopping.items():
            if self._running.get(effect_id) is running:
                del self._running[effect_id]

    async def release(self, *, deliver: bool) -> None:
        """Stop sending: once the outgoing effects so far were tried, or after `SENDING_GRACE`; at once unless
        `deliver`."""
        so_far = self._to_send()
        if deliver:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wait_until_tried(), SENDING_GRACE)
        self._queue = [queued for queued in self._queue if queued not in so_far]
        if self._sending is not None and self._sending in so_far:
            task = self._sending.task
            task.cancel()
            await asyncio.wait([task], timeout=CLOSING_GRACE)


@runtime_checkable
class Sender(Protocol):
    """The performer of an effect that nobody awaits and that must arrive all the same.

    The effect is stored in the outbox for each of its targets, in the transaction of its step, and stays there until
    the sender acknowledges that target in the `receipts` of the context.
    """

    def targets_of(self, effect: Any) -> Sequence[str]:
        """Return the names of those whom this effect must reach. If there are none, nothing is stored and nothing
        done. Must depend on nothing that changes while the engine is open."""
        ...

    async def __call__(self, effect: Any, context: EffectContext) -> None:
        """Try each target once, and return. Further attempts go on in the background."""
        ...


def senders_of(performers: Mapping[type[Effect], Performer]) -> dict[type[Effect], Sender]:
    """Return the performers of outgoing effects that are senders. The other performers are not looked at, because that
    takes some time for each, and every engine does it when it opens."""
    outgoing = ((kind, performers.get(kind)) for kind in OUTGOING)
    return {kind: one for kind, one in outgoing if isinstance(one, Sender)}


@runtime_checkable
class Abortable(Protocol):
    """The performer of awaited effects that may outlast it, such as a sub-agent, which goes on by itself when nobody
    waits for it any longer. So it is told to stop them, instead of being cancelled, and answers when they have stopped.
    """

    async def abort(self, effect: Any, context: EffectContext) -> None:
        """Stop the effect. If it is being performed here, the answer still comes from there. Otherwise it is not going
        to be performed; it has never begun, or an earlier process has begun it."""
        ...

    async def __call__(self, effect: Any, context: EffectContext) -> Answer | None:
        """Carry out the effect, or continue with what an earlier process has begun. A cancel of this task does not stop
        the effect: only the conversation closes here."""
        ...


def with_abort_of(performer: Performer, around: Performer) -> Performer:
    """Return `around`, a function around this performer, as a performer that is `Abortable` if this one is."""
    return _AbortableAround(performer, around) if isinstance(performer, Abortable) else around


class _AbortableAround:
    """A function around an abortable performer."""

    def __init__(self, performer: Abortable, around: Performer) -> None:
        self._around = around
        self.abort = performer.abort

    async def __call__(self, effect: Any, context: EffectContext) -> Answer | None:
        return await self._around(effect, context)


_ENDS_PROCESS = "a performer tried to end the process"
"""What is raised instead of an exception that asyncio would let out of its event loop."""

BROKEN = "Something broke inside the program that runs this conversation."
"""The failure of an effect whose performer raised an error that is not for people."""


def _fits(effect: Any, answer: Answer) -> bool:
    """Whether this answers the effect. It is not validated yet, so its id may be anything, or missing."""
    if type(answer) not in effect.answers:
        return False
    effect_id = getattr(answer, "effect_id", None)
    return type(effect_id) is int and effect_id == effect.effect_id
