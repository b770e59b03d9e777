"""The effects of one conversation that wait or run in this process, from their start to their answer or their abort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from ..states.effects import AwaitedEffect, Effect, OutgoingEffect
from ..states.events import Answer
from .answer_sender import AnswerSender
from .context import EffectContext
from .logs import performer_logger, redacting

logger = performer_logger("turnwise.dispatcher")

CLOSING_GRACE = 1.5
"""Seconds that running effects get to stop when a conversation closes: more than a tool gets to clean up."""

SENDING_GRACE = 5.0
"""Seconds that deliveries get for their first attempt when a conversation closes: enough for a few attempts, or for two
that hang."""

Telling: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Tells a performer to stop an effect, once it is called. A conversation may close before that, so it is no coroutine
yet: Python reports one that is never awaited."""


class PerformingDispatcher(Protocol):
    """A dispatcher that carries out effects itself, and knows each conversation that has any."""

    def perform(self, effect: Any, context: EffectContext) -> Coroutine[Any, Any, Answer | None]:
        """Carry out one effect, and return its answer."""
        ...

    def aborting(self, effect: Any, context: EffectContext) -> Telling | None:
        """Return what tells the performer of this effect to stop it; None if the performer is to be cancelled."""
        ...

    def forget_if_idle(self, conversation_id: str) -> None:
        """Called whenever a conversation may have no effect left: forget it if none waits or runs."""
        ...


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


class ConversationEffects:
    """The effects of one conversation that wait or run."""

    __slots__ = ("_answers", "_conversation_id", "_dispatcher", "_queue", "_running", "_sending")

    def __init__(self, conversation_id: str, dispatcher: PerformingDispatcher, answers: AnswerSender) -> None:
        self._conversation_id = conversation_id
        self._dispatcher = dispatcher
        self._answers = answers
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
            self._answers.send_acknowledgement(effect, queued.context)
        else:
            self._running[effect.effect_id] = queued
            queued.is_aborted = True
            queued.begin(self._drop(queued, aborting), self._finished)

    async def _drop(self, queued: _DispatchedEffect, aborting: Telling) -> None:
        """Tell the performer of an effect that never starts here. Its acknowledgement follows."""
        await self._has_told(queued, aborting)

    async def _tell(self, running: _DispatchedEffect, aborting: Telling) -> None:
        """Tell the performer of a running effect. If that fails, the performer is cancelled."""
        if not await self._has_told(running, aborting):
            running.task.cancel()

    async def _has_told(self, queued: _DispatchedEffect, aborting: Telling) -> bool:
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
        if answer is not None:
            self._answers.send_result(effect, context, answer)
        elif running.is_stopping:
            pass  # the answer is lost, as in a crash
        elif error is None and running.is_aborted:
            self._answers.send_acknowledgement(effect, context)
        elif error is None and not is_cancelled:
            self._answers.send_result(effect, context, None)
        else:
            # Also a performer that nobody here cancelled: a library's own cancellation has leaked out of it.
            self._answers.send_failure(effect, context, error)
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
