"""Runs the application's own tools in a conversation that has no engine.

The tools run as in an engine: with the arguments that the model wrote or a person edited, in their time, and whatever
they do becomes one answer. What they know of the conversation is what a test's `History` knows.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from ..effects.context import EffectContext
from ..effects.tools.reconcile_performer import ReconciliationPerformer
from ..effects.tools.registry import ToolRegistry
from ..effects.tools.tool_performer import ToolPerformer
from ..states.effects import ExecuteTool, ReconcileTool
from ..states.events import Answer, AskUserQuestionPending, ToolComplete, ToolReconciled
from ..states.projections.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from .clock import ManualClock
from .history import History
from .tool_calls import AnyTools

CONVERSATION = "conversation"
"""The id of the conversation, as tools see it."""


class ToolRuns:
    """Answers effects by running these tools, where the effect is about a call of one of them."""

    def __init__(self, tools: AnyTools) -> None:
        self._registry = ToolRegistry(tools)

    def replace(self, answer: Answer, history: History, at: datetime) -> Answer:
        """The answer, or what the tool really does if the answer stands for that. The tool runs now, to its end.

        Call it where no event loop runs: it brings its own.
        """
        effect = history.in_flight.get(answer.effect_id)
        stands_for_tool = isinstance(answer, ToolComplete | AskUserQuestionPending | ToolReconciled)
        if not stands_for_tool or not isinstance(effect, ExecuteTool | ReconcileTool):
            return answer
        if self._registry.find(effect.call.name) is None:
            return answer
        return asyncio.run(self._perform(effect, history, at))

    async def _perform(self, effect: ExecuteTool | ReconcileTool, history: History, at: datetime) -> Answer:
        clock = ManualClock(at)
        context = EffectContext(
            conversation_id=CONVERSATION,
            seq=len(history.log),
            turn=history.state.book.turn,
            context=history.context,
            history=_Said(history),
            progress=lambda effect_id, kind, data: None,
            receipts=_NoReceipts(),
        )
        if isinstance(effect, ReconcileTool):
            return await ReconciliationPerformer(self._registry, clock)(effect, context)
        return await ToolPerformer(self._registry, clock)(effect, context)


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
