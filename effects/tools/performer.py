"""Runs a tool: finds it, hands it the arguments that the model wrote, and turns what comes of it into an event."""

from __future__ import annotations

from ...states.effects import ExecuteTool
from ...states.events import AskUserQuestionPending, ToolComplete
from ...states.values.messages import ToolResult
from ..clock import Clock
from ..context import EffectContext
from .acts import Question
from .context import ToolContext
from .registry import ToolRegistry
from .run import run


class ToolPerformer:
    """Carries out `ExecuteTool`."""

    def __init__(self, tools: ToolRegistry, clock: Clock) -> None:
        self._tools = tools
        self._clock = clock

    async def __call__(self, effect: ExecuteTool, context: EffectContext) -> ToolComplete | AskUserQuestionPending:
        """Run the call, and answer with its result, or with the questions that it asks."""
        outcome = await self._run(effect, context)
        if isinstance(outcome, Question):
            return AskUserQuestionPending(effect_id=effect.effect_id, at=self._clock.now(), questions=outcome.questions)
        return ToolComplete(effect_id=effect.effect_id, at=self._clock.now(), result=outcome)

    async def _run(self, effect: ExecuteTool, context: EffectContext) -> ToolResult | Question:
        call = await context.call(effect.call)
        tool = self._tools.find(call.name)
        if tool is None:
            # The response was taken by an engine that knew the tool; this one was opened without it.
            return ToolResult(text=self._tools.unknown(call.name), error=True)

        tool_context = tool_context_of(call.call_id, context, effect.effect_id, effect.effect_id)
        return await run(tool, call.arguments, tool_context, context.policy)


def tool_context_of(call_id: str, context: EffectContext, effect_id: int, started_as: int) -> ToolContext:
    """What a function may know that serves this call as the effect `effect_id`; the call was started as another effect
    if a crash lies between."""

    def progress(text: str) -> None:
        context.progress(effect_id, "tool_progress", {"call_id": call_id, "text": text})

    return ToolContext(
        conversation_id=context.conversation_id, key=context.key(started_as), call_id=call_id, progress=progress
    )
