"""A tool is asked what became of a call that a crash interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from turnwise import ToolContext, tool
from turnwise.effects.clock import SystemClock
from turnwise.effects.context import EffectContext
from turnwise.effects.tools.performers import ReconciliationPerformer
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states import Context, InvalidInput, ReconcileTool, ToolCall, ToolReconciled, ToolResult
from turnwise.states.transcript import Transcript
from turnwise.states.values.round import RoundCall

from ...support.effect_contexts import FixedHistory, NoReceipts

CALL = ToolCall(call_id="call_1_0", name="pay", crash="reconcile")
EFFECT = ReconcileTool(effect_id=7, call=RoundCall.of(CALL, 2), started_as=3)


class OneCall(FixedHistory):
    """A history with one call."""

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call."""
        return CALL


async def asked(reconcile: Callable[..., Any], show: Callable[[int, str, Any], None]) -> ToolReconciled:
    """Ask a tool by this function, with progress shown by `show`."""

    @tool(crash="reconcile", reconcile=reconcile)
    def pay() -> str:
        """Pay."""
        return "Paid."

    context = EffectContext("c", 3, 1, Context(), OneCall(Transcript()), show, NoReceipts())
    answer = await ReconciliationPerformer(ToolRegistry([pay]), SystemClock())(EFFECT, context)
    await asyncio.sleep(0)
    return answer


def in_a_thread(it: ToolContext) -> str:
    """Tell where it looks, from a thread of its own."""
    it.progress("Looking it up.")
    return "ran"


async def in_the_loop(it: ToolContext) -> str:
    """Tell where it looks, from the event loop."""
    it.progress("Looking it up.")
    return "ran"


class TestProgress:
    """It goes the same way as the progress of the tool itself."""

    @pytest.mark.parametrize("reconcile", [in_a_thread, in_the_loop])
    async def test_it_is_shown_in_the_event_loop(self, reconcile: Callable[..., Any]) -> None:
        """Whichever thread reports it: what a conversation shows belongs to the loop."""
        shown: list[tuple[object, ...]] = []

        answer = await asked(reconcile, lambda *line: shown.append((*line, threading.current_thread())))

        assert answer.verdict == "ran"
        assert shown == [
            (7, "tool_progress", {"call_id": "call_1_0", "text": "Looking it up."}, threading.main_thread())
        ]

    async def test_what_has_no_text_is_refused_where_it_is_reported(self) -> None:
        """A number is shown as its digits, and an object that cannot be written raises."""
        shown: list[Any] = []

        class Unwritable:
            def __str__(self) -> str:
                raise RuntimeError

        def look(it: ToolContext) -> ToolResult:
            it.progress(1)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                it.progress(Unwritable())  # type: ignore[arg-type]
            return ToolResult(text="Paid.")

        answer = await asked(look, lambda _, __, data: shown.append(data["text"]))

        assert answer.result == ToolResult(text="Paid.")
        assert shown == ["1"]

    async def test_nothing_is_shown_after_the_answer(self) -> None:
        """A thread that goes on is no longer heard."""
        shown: list[Any] = []
        kept: list[ToolContext] = []

        def look(it: ToolContext) -> str:
            kept.append(it)
            return "did_not_run"

        await asked(look, lambda *line: shown.append(line))
        await asyncio.to_thread(kept[0].progress, "Still looking.")
        await asyncio.sleep(0)

        assert shown == []
