"""Runs the application's own tools in a conversation that has no engine.

The tools run as in an engine: with the arguments that the model wrote or a person edited, in their time, and whatever
they do becomes one answer. What they know of the conversation is what a test's `History` knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ..states.effects import ExecuteTool, ReconcileTool, ResumeTool
from ..states.events import Answer, AskUserQuestionPending, ToolComplete, ToolReconciled
from ..states.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from .clock import ManualClock
from .history import History
from .tool_calls import AnyTools, registry_of

if TYPE_CHECKING:
    from ..effects.context import EffectContext, SuspendedCalls
    from ..effects.tools.registry import ToolRegistry

T = TypeVar("T")

CONVERSATION = "conversation"
"""The id of the conversation, as tools see it."""


class ToolRuns:
    """Answers effects by running these tools, where the effect is about a call of one of them. Close it in the end: a
    call may still wait for a person, in an event loop that is kept for it."""

    def __init__(self, tools: AnyTools) -> None:
        listed = tools if isinstance(tools, Collection) else list(tools)
        self._registry = registry_of(listed) if listed else None
        self._runner: asyncio.Runner | None = None
        self._suspended: SuspendedCalls | None = None

    def replace(self, answer: Answer, history: History, at: datetime) -> Answer:
        """The answer, or what the tool really does if the answer stands for that. The tool runs now, until it ends or
        asks a person; a call that asks and waits goes on when it is resumed.

        Call it where no event loop runs: it brings its own.
        """
        effect = history.in_flight.get(answer.effect_id)
        stands_for_tool = isinstance(answer, ToolComplete | AskUserQuestionPending | ToolReconciled)
        if not stands_for_tool or not isinstance(effect, ExecuteTool | ResumeTool | ReconcileTool):
            return answer
        if self._registry is None or self._registry.find(effect.call.name) is None:
            return answer
        return self._run(_perform(self._registry, effect, self._context_in(history), at))

    def forget(self) -> None:
        """Stop the calls that wait for a person, as if the process had died."""
        if self._suspended:
            self._run(self._suspended.close())
        self._suspended = None

    def close(self) -> None:
        """Stop the calls that wait."""
        self.forget()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(work)
        finally:
            if not self._suspended:
                self._runner.close()
                self._runner = None

    def _context_in(self, history: History) -> EffectContext:
        from ..effects.context import EffectContext, SuspendedCalls

        if self._suspended is None:
            self._suspended = SuspendedCalls()
        return EffectContext(
            conversation_id=CONVERSATION,
            seq=len(history.log),
            turn=history.state.book.turn,
            context=history.context,
            history=_Said(history),
            progress=lambda effect_id, kind, data: None,
            receipts=_NoReceipts(),
            suspended=self._suspended,
        )


async def _perform(
    tools: ToolRegistry, effect: ExecuteTool | ResumeTool | ReconcileTool, context: EffectContext, at: datetime
) -> Answer:
    from ..effects.tools.performers import ReconciliationPerformer, ResumptionPerformer, ToolPerformer

    clock = ManualClock(at)
    if isinstance(effect, ReconcileTool):
        return await ReconciliationPerformer(tools, clock)(effect, context)
    if isinstance(effect, ResumeTool):
        return await ResumptionPerformer(clock)(effect, context)
    return await ToolPerformer(tools, clock)(effect, context)


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

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Record nothing."""
