"""Runs the application's own tools in a conversation that has no engine.

The tools run as in an engine: with the arguments that the model wrote or a person edited, in their time, and whatever
they do becomes one answer. What they know of the conversation is what a test's `History` knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from ..states.effects import ExecuteTool, ReconcileTool
from ..states.events import Answer, AskUserQuestionPending, ToolComplete, ToolReconciled
from ..states.projections.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from .clock import ManualClock
from .history import History
from .tool_calls import AnyTools, registry_of

if TYPE_CHECKING:
    from ..effects.context import EffectContext
    from ..effects.tools.registry import ToolRegistry

CONVERSATION = "conversation"
"""The id of the conversation, as tools see it."""


class ToolRuns:
    """Answers effects by running these tools, where the effect is about a call of one of them."""

    def __init__(self, tools: AnyTools) -> None:
        listed = tools if isinstance(tools, Collection) else list(tools)
        self._registry = registry_of(listed) if listed else None

    def replace(self, answer: Answer, history: History, at: datetime) -> Answer:
        """The answer, or what the tool really does if the answer stands for that. The tool runs now, to its end.

        Call it where no event loop runs: it brings its own.
        """
        effect = history.in_flight.get(answer.effect_id)
        stands_for_tool = isinstance(answer, ToolComplete | AskUserQuestionPending | ToolReconciled)
        if not stands_for_tool or not isinstance(effect, ExecuteTool | ReconcileTool):
            return answer
        if self._registry is None or self._registry.find(effect.call.name) is None:
            return answer
        return asyncio.run(_perform(self._registry, effect, history, at))


async def _perform(tools: ToolRegistry, effect: ExecuteTool | ReconcileTool, history: History, at: datetime) -> Answer:
    from ..effects.tools.reconcile_performer import ReconciliationPerformer
    from ..effects.tools.tool_performer import ToolPerformer

    context = _context_in(history)
    if isinstance(effect, ReconcileTool):
        return await ReconciliationPerformer(tools, ManualClock(at))(effect, context)
    return await ToolPerformer(tools, ManualClock(at))(effect, context)


def _context_in(history: History) -> EffectContext:
    from ..effects.context import EffectContext

    return EffectContext(
        conversation_id=CONVERSATION,
        seq=len(history.log),
        turn=history.state.book.turn,
        context=history.context,
        history=_Said(history),
        progress=lambda effect_id, kind, data: None,
        receipts=_NoReceipts(),
    )


class _Said:
    """What was said, as performers read it."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments."""
        return self._history.said.call(call.call_id)

    async def transcript(self, up_to: int) -> Transcript:
        """Return what was said."""
        return self._history.said

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        return self._history.said.words(said)

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this."""
        return self._history.said.origin(said)


class _NoReceipts:
    """An outbox in which nothing is recorded: tools deliver nothing."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record nothing."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record nothing."""
