"""Carries out what a step asks for: first it is written down, then it is done.

The runner has two halves behind one interface. `commit` persists the step through a port that the store fills;
`perform` acts on the world. Between the two lies the moment that makes crashes harmless: what is done was always
written down before.

Every outcome becomes an event and goes in by the same door. One awaited effect gives exactly one answer: its
performer's, `ToolAborted` when a tool was aborted, or `EffectFailed` when the performer itself broke, in whatever way.
Aborted model requests and timers are no longer awaited and give none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from ..states.effects import Abort, Effect, ExecuteTool, RequestLlm, StartTimer
from ..states.events import Answer, EffectFailed, Event, ToolAborted, exact
from ..states.step import Step
from .clock import Clock
from .scene import Scene

logger = logging.getLogger("turnwise.runner")

Performer = Callable[[Any, Scene], Awaitable[Answer]]
"""Carries out one kind of effect, and answers it. Must end by itself: it keeps a deadline of its own."""

Awaited = RequestLlm | ExecuteTool | StartTimer
"""The effects that have an answer."""

CLOSING_GRACE = 1.0
"""Seconds that effects get to stop when the engine closes. Ours."""


class Recorder(Protocol):
    """Where steps are written down. The store fills this port."""

    async def append(self, event: Event, step: Step) -> None:
        """Store one step, whole or not at all, durably when this returns."""
        ...


class Runner:
    """Carries out the effects of one conversation."""

    def __init__(
        self,
        recorder: Recorder,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        post: Callable[[Event], None],
    ) -> None:
        self._recorder = recorder
        self._performers = performers
        self._clock = clock
        self._post = post
        self._tasks: dict[int, asyncio.Task[Answer]] = {}
        self._aborted: set[int] = set()

    async def commit(self, event: Event, step: Step) -> None:
        """Write the step down; until this returns nothing of it has happened. Raises what the recorder raises."""
        await self._recorder.append(event, step)

    def perform(self, effects: Iterable[Effect], scene: Scene) -> None:
        """Start the effects that act on the world, in order. Call this only after the step was committed."""
        for effect in effects:
            if isinstance(effect, Abort):
                self._abort(effect.effect_id)
            elif isinstance(effect, Awaited):
                self._start(effect, scene)

    async def close(self) -> None:
        """Stop whatever runs; its answers are lost, as they would be in a crash."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_GRACE)

    def _start(self, effect: Awaited, scene: Scene) -> None:
        task = asyncio.ensure_future(_contained(self._performers[type(effect)], effect, scene))
        self._tasks[effect.effect_id] = task
        task.add_done_callback(lambda done: self._finish(effect, done))

    def _abort(self, effect_id: int) -> None:
        task = self._tasks.get(effect_id)
        if task is not None:
            self._aborted.add(effect_id)
            task.cancel()

    def _finish(self, effect: Awaited, task: asyncio.Future[Answer]) -> None:
        """Post the answer. Done callbacks see tasks that were cancelled before they began, too."""
        # Looked at in any case: asyncio complains at the end about an error that nobody has looked at.
        error = None if task.cancelled() else task.exception()
        if self._tasks.pop(effect.effect_id, None) is None:
            return
        aborted = effect.effect_id in self._aborted
        self._aborted.discard(effect.effect_id)
        if not task.cancelled() and error is None:
            self._post(self._exact(effect, task.result()))
        elif not (task.cancelled() and aborted):
            # Also a performer that was cancelled by nobody here: some library's own cancellation leaked out of it.
            self._post(self._failure(effect, error))
        elif isinstance(effect, ExecuteTool):
            self._post(ToolAborted(effect_id=effect.effect_id, at=self._clock.now()))

    def _exact(self, effect: Awaited, answer: Answer) -> Event:
        """The answer as the log will hold it; one that no log can hold is a performer's fault."""
        try:
            return exact(answer)
        except ValueError as error:
            return self._failure(effect, error)

    def _failure(self, effect: Awaited, error: BaseException | None) -> EffectFailed:
        logger.error("A performer broke on %s.", effect.type, exc_info=error)
        sentence = "Something broke inside the program that runs this conversation."
        return EffectFailed(effect_id=effect.effect_id, at=self._clock.now(), kind="internal", sentence=sentence)


async def _contained(perform: Performer, effect: Awaited, scene: Scene) -> Answer:
    """A performer that wants the whole process to exit only breaks: asyncio would let that out of its loop.

    It is called here and not before: an effect that is aborted at once leaves nothing behind that was never awaited.
    """
    try:
        return await perform(effect, scene)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError("a performer tried to end the process") from error
