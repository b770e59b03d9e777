"""Carries out what a step asks for: first it is written down, then it is done.

The runner has two halves behind one interface. `commit` persists the step through a port that the store fills;
`perform` acts on the world. Between the two lies the moment that makes crashes harmless: what is done was always
written down before.

Every outcome becomes an event and goes in by the same door. One awaited effect gives exactly one answer: its
performer's, an acknowledgement when a tool or a sub-agent was stopped, or `EffectFailed` when the performer broke in
whatever way, or when there is none. Other effects that are aborted are no longer awaited and give none.

What goes out to people is tried before a tool starts that was asked for behind it, so that what is said before a tool
runs is heard before it runs (case B2). Models are asked meanwhile: nobody sees them think. This waiting is the
starter's: events are handled, too, and an effect that is aborted before its turn came never starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from ..states.effects import OUTGOING, AwaitedEffect, ControlEffect, Effect, OutgoingEffect
from ..states.events import Answer, EffectFailed, Event, exact
from ..states.step import Step
from .clock import Clock
from .context import EffectContext
from .receipts import Receipts

logger = logging.getLogger("turnwise.runner")

Performer = Callable[[Any, EffectContext], Awaitable[Answer | None]]
"""Carries out one kind of effect, and answers it if it is awaited. Must end by itself: it keeps a deadline.

One for an effect that nobody awaits is a `Sender`, if the effect is to survive a crash; any other tries it once."""

CLOSING_GRACE = 1.5
"""Seconds that effects get to stop when the engine closes: more than a tool gets to clean up. Ours."""

SENDING_GRACE = 5.0
"""Seconds that what was said gets to go out when the engine closes: a few attempts, or two that hang. Ours."""


@runtime_checkable
class Sender(Protocol):
    """A performer for an effect that nobody awaits and that must arrive all the same.

    The effect stands in the outbox for each of the `targets`, stored with its step, until the sender acknowledges that
    target in the `receipts` of the scene.
    """

    @property
    def targets(self) -> Sequence[str]:
        """The names of all whom each effect must reach. Where there are none nothing is stored, and nothing done."""
        ...

    async def __call__(self, effect: Any, scene: EffectContext) -> None:
        """Try each target once. Whatever has to be tried again goes on beside this."""
        ...


class Log(Receipts, Protocol):
    """The log of one conversation, open at its end: where its steps are written down. The store fills this port."""

    async def append(self, event: Event, step: Step, targets: Sequence[tuple[int, str]] = ()) -> None:
        """Store one step, whole or not at all, durably when this returns; and with it, for each effect that nobody
        awaits, whom it must reach: its id, and the target."""
        ...


class Runner:
    """Carries out the effects of one conversation."""

    def __init__(
        self,
        log: Log,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        post: Callable[[Event], None],
    ) -> None:
        self._log = log
        self._performers = performers
        going_out = ((kind, performers.get(kind)) for kind in OUTGOING)
        self._senders: dict[type[Effect], Sender] = {kind: one for kind, one in going_out if isinstance(one, Sender)}
        self._clock = clock
        self._post = post
        self._waiting: deque[tuple[Effect, EffectContext]] = deque()
        self._sending: asyncio.Task[Answer | None] | None = None
        self._tasks: dict[int, asyncio.Task[Answer | None]] = {}
        self._aborted: set[int] = set()
        self._stopping = False

    async def commit(self, event: Event, step: Step) -> None:
        """Write the step down; until this returns nothing of it has happened. Raises what the log raises."""
        await self._log.append(event, step, tuple(self._targets(step.effects)))

    def _targets(self, effects: Iterable[Effect]) -> Iterator[tuple[int, str]]:
        for effect in effects:
            sender = self._senders.get(type(effect))
            if sender is not None and isinstance(effect, OutgoingEffect):
                yield from ((effect.effect_id, target) for target in sender.targets)

    def perform(self, effects: Iterable[Effect], scene: EffectContext) -> None:
        """Start the effects that act on the world. Call this only after the step was committed."""
        for effect in effects:
            if isinstance(effect, OutgoingEffect):
                self._send_later(effect, scene)
            elif self._stopping:
                continue
            elif isinstance(effect, ControlEffect):
                self._abort(effect.effect_id)
            elif isinstance(effect, AwaitedEffect) and effect.AFTER_DELIVERIES:
                self._waiting.append((effect, scene))
            elif isinstance(effect, AwaitedEffect):
                self._start(effect, scene)
        self._start_next()

    async def sent(self) -> None:
        """Return when all that was to go out has been tried."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def stop(self, *, keeps: bool = True) -> None:
        """Begin nothing more but to send, and tell whatever runs to stop. Return when it has, or will not.

        What finishes all the same is answered, unless `keeps` is false; all other answers are lost, as they would be in
        a crash.
        """
        self._stopping = True
        self._waiting = deque(one for one in self._waiting if isinstance(one[0], OutgoingEffect))
        tasks = list(self._tasks.values())
        if not keeps:
            self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_GRACE)
        self._tasks.clear()

    async def close(self, *, sends: bool = True) -> None:
        """Stop sending, too: once all that was to go out has been tried, or at once. To be called after `stop`."""
        if sends:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.sent(), SENDING_GRACE)
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending], timeout=CLOSING_GRACE)

    # --- starting

    def _send_later(self, effect: Effect, scene: EffectContext) -> None:
        if type(effect) not in self._performers:
            logger.error("Nobody here carries out %s; it is lost.", effect.type)
            return
        sender = self._senders.get(type(effect))
        if sender is None or sender.targets:
            self._waiting.append((effect, scene))

    def _start_next(self) -> None:
        while self._waiting and self._sending is None:
            effect, scene = self._waiting.popleft()
            if isinstance(effect, OutgoingEffect):
                self._send(effect, scene)
            else:
                self._start(effect, scene)

    def _send(self, effect: Effect, scene: EffectContext) -> None:
        self._sending = asyncio.ensure_future(_contained(self._performers[type(effect)], effect, scene))
        self._sending.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Future[Answer | None]) -> None:
        self._sending = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("A performer broke on what was to go out.", exc_info=task.exception())
        self._start_next()

    def _start(self, effect: Any, scene: EffectContext) -> None:
        if type(effect) not in self._performers:
            self._post(self._unavailable(effect))
            return
        task = asyncio.ensure_future(_contained(self._performers[type(effect)], effect, scene))
        self._tasks[effect.effect_id] = task
        task.add_done_callback(lambda done: self._finish(effect, done))

    # --- ending

    def _abort(self, effect_id: int) -> None:
        task = self._tasks.get(effect_id)
        if task is not None:
            self._aborted.add(effect_id)
            task.cancel()
            return
        for waiting in self._waiting:
            effect: Any = waiting[0]
            if isinstance(effect, AwaitedEffect) and effect.effect_id == effect_id:
                self._waiting.remove(waiting)
                self._acknowledge(effect)
                return

    def _finish(self, effect: Any, task: asyncio.Future[Answer | None]) -> None:
        """Post the answer. Done callbacks see tasks that were cancelled before they began, too."""
        # Looked at in any case: asyncio complains at the end about an error that nobody has looked at.
        error = None if task.cancelled() else task.exception()
        if self._tasks.pop(effect.effect_id, None) is None:
            return
        aborted = effect.effect_id in self._aborted
        self._aborted.discard(effect.effect_id)
        if not task.cancelled() and error is None:
            self._post(self._exact(effect, task.result()))
        elif self._stopping:
            return
        elif not (task.cancelled() and aborted):
            # Also a performer that was cancelled by nobody here: some library's own cancellation leaked out of it.
            self._post(self._failure(effect, error))
        else:
            self._acknowledge(effect)

    def _acknowledge(self, effect: AwaitedEffect) -> None:
        """Post the acknowledgement of an effect that was stopped, if it has one; nobody waits for any other."""
        acknowledgement = effect.acknowledgement(effect.effect_id, self._clock.now())
        if acknowledgement is not None:
            self._post(acknowledgement)

    def _exact(self, effect: Any, answer: Answer | None) -> Event:
        """The answer as the log will hold it; one that no log can hold is a performer's fault."""
        try:
            if answer is None:
                raise ValueError("an awaited effect was left without an answer")
            return exact(answer)
        except ValueError as error:
            return self._failure(effect, error)

    def _failure(self, effect: Any, error: BaseException | None) -> EffectFailed:
        logger.error("A performer broke on %s.", effect.type, exc_info=error)
        sentence = "Something broke inside the program that runs this conversation."
        return EffectFailed(effect_id=effect.effect_id, at=self._clock.now(), kind="internal", sentence=sentence)

    def _unavailable(self, effect: Any) -> EffectFailed:
        sentence = f"The program that runs this conversation has nothing for this: {effect.type.replace('_', ' ')}."
        return EffectFailed(effect_id=effect.effect_id, at=self._clock.now(), kind="unavailable", sentence=sentence)


async def _contained(perform: Performer, effect: Any, scene: EffectContext) -> Answer | None:
    """A performer that wants the whole process to exit only breaks: asyncio would let that out of its loop.

    It is called here and not before: an effect that is aborted at once leaves nothing behind that was never awaited.
    """
    try:
        return await perform(effect, scene)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError("a performer tried to end the process") from error
