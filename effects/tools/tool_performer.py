"""Runs a tool: finds it, passes the arguments that the model wrote, and turns the outcome into an event."""

from __future__ import annotations

from ...states.effects import ExecuteTool
from ...states.events import AskUserQuestionPending, ToolComplete
from ...states.values.messages import ToolResult
from ..clock import Clock
from ..context import EffectContext
from ..recall.search import ConversationSearch
from .context import tool_context_of
from .execution import ToolOutcome, execute
from .question import Question
from .registry import ToolRegistry
from .result_length import MAX_RESULT


class ToolPerformer:
    """Carries out `ExecuteTool`. `max_result` is the most characters of a result, unless its tool says otherwise."""

    def __init__(
        self, tools: ToolRegistry, clock: Clock, max_result: int = MAX_RESULT, search: ConversationSearch | None = None
    ) -> None:
        self._tools = tools
        self._clock = clock
        self._max_result = max_result
        self._search = search

    async def __call__(self, effect: ExecuteTool, context: EffectContext) -> ToolComplete | AskUserQuestionPending:
        """Run the call, and answer with its result, or with the questions that it asks."""
        outcome = await self._execute(effect, context)
        if isinstance(outcome, Question):
            return AskUserQuestionPending(effect_id=effect.effect_id, at=self._clock.now(), questions=outcome.questions)
        return ToolComplete(effect_id=effect.effect_id, at=self._clock.now(), result=outcome)

    async def _execute(self, effect: ExecuteTool, context: EffectContext) -> ToolOutcome:
        call = await context.call(effect.call)
        chosen = context.context.tools_in(context.turn)
        allowed = None if chosen is None else self._tools.allowed(chosen)
        tool = self._tools.find(call.name, allowed)
        if tool is None:
            # The call was checked by an engine that had the tool, or made by a performer of the application that offers
            # tools of its own; this engine was opened without it, or the conversation may not use it.
            return ToolResult(text=self._tools.describe_unknown(call.name, allowed), error=True)
        tool_context = tool_context_of(call.call_id, context, effect.effect_id, effect.effect_id, self._search)
        return await execute(tool, call.raw_arguments, tool_context, context.policy, self._max_result, context.redact)
