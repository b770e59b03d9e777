"""Asks a tool what became of a call that was running when the process died.

Nobody else can find out. Only a clear answer counts: if the tool fails, hangs or returns something unexpected, the
answer is "unknown", and a person is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ...states.effects import ReconcileTool
from ...states.events import ToolReconciled
from ...states.values.messages import ToolResult
from ..application_functions import Returned
from ..clock import Clock
from ..context import EffectContext
from ..logs import performer_logger
from .arguments.argument_errors import InvalidArguments
from .context import tool_context_of
from .isolation import call_function
from .progress import Progress
from .registry import ToolRegistry
from .result_length import MAX_RESULT, cut_result

logger = performer_logger("turnwise.tools")

Verdict = Literal["ran", "did_not_run", "unknown"]
"""What a tool can say of a call that a crash interrupted."""


class ReconciliationPerformer:
    """Carries out `ReconcileTool`."""

    def __init__(self, tools: ToolRegistry, clock: Clock, max_result: int = MAX_RESULT) -> None:
        self._tools = tools
        self._clock = clock
        self._max_result = max_result

    async def __call__(self, effect: ReconcileTool, context: EffectContext) -> ToolReconciled:
        """Ask the tool, and answer with its verdict."""
        reply = await self._ask(effect, context)
        verdict: Verdict = "ran" if isinstance(reply, ToolResult) else reply
        result = reply if isinstance(reply, ToolResult) else None
        return ToolReconciled(effect_id=effect.effect_id, at=self._clock.now(), verdict=verdict, result=result)

    async def _ask(self, effect: ReconcileTool, context: EffectContext) -> Verdict | ToolResult:
        call = await context.call(effect.call)
        tool = self._tools.find(call.name)
        if tool is None or tool.reconcile is None:
            return "unknown"
        given = tool_context_of(call.call_id, context, effect.effect_id, effect.started_as)
        progress = Progress(given.progress)
        try:
            arguments = tool.reconcile.arguments.read(call.raw_arguments, replace(given, progress=progress))
        except InvalidArguments as invalid:
            logger.warning("%s could not be asked about a call: %s", tool.name, invalid.sentence)
            return "unknown"
        try:
            outcome = await call_function(tool.reconcile, arguments)
        finally:
            progress.close()
        match outcome:
            case Returned(ToolResult() as result):
                return await cut_result(result, tool.max_result or self._max_result, context.redact)
            case Returned("ran" | "did_not_run" | "unknown" as verdict):
                return verdict
            case _:
                logger.warning("%s could not say what became of a call: %s", tool.name, outcome)
                return "unknown"
