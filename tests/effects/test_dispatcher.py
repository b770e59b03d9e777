"""The runner at the edges: effects that are taken back at once, and performers that break while everything closes."""

from __future__ import annotations

import asyncio
import gc
import warnings
from datetime import datetime
from typing import Any

from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import Runner
from turnwise.states import Abort, Context, Event, RequestLlm
from turnwise.states.projections.transcript import Transcript
from turnwise.testing import ManualClock
from turnwise.testing.clock import NOON

REQUEST = RequestLlm(effect_id=1, model="model", at=NOON)


class NoStore:
    """A log that is never written to."""

    async def append(self, event: Event, step: Any, targets: Any = ()) -> None:
        """Nothing is stored here."""
        raise NotImplementedError

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Nothing is delivered here."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Nothing is delivered here."""


SCENE = EffectContext("a conversation", 1, Context(), Transcript(), lambda effect_id, kind, data: None, NoStore())


class TestEndings:
    """However an effect ends, nothing is left of it."""

    async def test_an_effect_that_is_aborted_at_once_was_never_begun(self) -> None:
        """And Python has nothing to complain about: no coroutine was made that nobody awaits."""
        begun: list[int] = []
        answers: list[Event] = []

        async def perform(effect: RequestLlm, scene: EffectContext) -> Any:
            begun.append(effect.effect_id)

        runner = Runner(NoStore(), {RequestLlm: perform}, ManualClock(), answers.append)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            runner.perform((REQUEST, Abort(effect_id=1)), SCENE)
            await runner.stop()
            gc.collect()

        assert begun == []
        assert answers == []
        assert [str(warning.message) for warning in warned] == []

    async def test_a_performer_may_break_while_everything_closes(self) -> None:
        """Its error is of no use to anybody any more, and asyncio does not report it as forgotten."""
        reported: list[dict[str, Any]] = []
        answers: list[Event] = []

        async def perform(effect: RequestLlm, scene: EffectContext) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is gone")

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        runner = Runner(NoStore(), {RequestLlm: perform}, ManualClock(), answers.append)
        runner.perform((REQUEST,), SCENE)
        await asyncio.sleep(0)
        await runner.stop()
        gc.collect()

        assert answers == []
        assert reported == []
