"""The dispatcher in this process: order, aborts, answers, and performers that fail while a conversation closes."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

from turnwise.effects.context import EffectContext
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.states import Answer, RequestLlm
from turnwise.testing import ManualClock
from turnwise.testing.clock import NOON

from ..support.effect_contexts import effect_context

REQUEST = RequestLlm(effect_id=1, model="model", at=NOON)


CONTEXT = effect_context("a conversation")


class TestEndings:
    """However an effect ends, nothing of it remains."""

    async def test_an_effect_that_is_aborted_at_once_was_never_begun(self) -> None:
        """Its performer is not called, and Python reports no coroutine that was never awaited."""
        begun: list[int] = []
        answers: list[tuple[str, Answer]] = []

        async def perform(effect: RequestLlm, context: EffectContext) -> Any:
            begun.append(effect.effect_id)

        dispatcher = InProcessDispatcher({RequestLlm: perform}, ManualClock(), lambda *answer: answers.append(answer))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            dispatcher.dispatch((REQUEST,), CONTEXT)
            dispatcher.abort(CONTEXT.conversation_id, REQUEST.effect_id)
            await dispatcher.stop(CONTEXT.conversation_id)
            gc.collect()

        assert begun == []
        assert answers == []
        assert [str(warning.message) for warning in warned] == []

    async def test_a_performer_may_break_while_everything_closes(self) -> None:
        """Its error is dropped, and asyncio does not report it as an exception that was never retrieved."""
        reported: list[dict[str, Any]] = []
        answers: list[tuple[str, Answer]] = []

        async def perform(effect: RequestLlm, context: EffectContext) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is gone")

        asyncio.get_running_loop().set_exception_handler(lambda loop, details: reported.append(details))
        dispatcher = InProcessDispatcher({RequestLlm: perform}, ManualClock(), lambda *answer: answers.append(answer))
        dispatcher.dispatch((REQUEST,), CONTEXT)
        await asyncio.sleep(0)
        await dispatcher.stop(CONTEXT.conversation_id)
        gc.collect()

        assert answers == []
        assert reported == []
