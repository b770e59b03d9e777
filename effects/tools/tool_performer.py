"""Runs tools: finds them, passes the arguments that the model wrote, and turns the outcome into an event.

A call that asks the user and then goes on is held by its conversation meanwhile, and resumed by another effect.
"""

from __future__ import annotations

from functools import partial

from ...states.effects import ExecuteTool, ResumeTool
from ...states.events import AskUserQuestionPending, ToolAborted, ToolComplete, ToolReconciled
from ...states.values.messages import REPEATABLE, ToolResult
from ...states.values.value import unvalidated
from ..agents.port import Agents
from ..clock import Clock
from ..context import EffectContext
from ..recall.search import ConversationSearch
from .asking import Answers
from .context import tool_context_of
from .execution import Suspended, ToolRun
from .outcomes import ToolOutcome
from .registry import ToolRegistry
from .result_length import MAX_RESULT

ToolAnswer = ToolComplete | AskUserQuestionPending
"""The answer to an effect that runs a tool."""


class ToolPerformer:
    """Carries out `ExecuteTool`. `max_result` is the most characters of a result, unless its tool says otherwise."""

    def __init__(
        self,
        tools: ToolRegistry,
        clock: Clock,
        max_result: int = MAX_RESULT,
        search: ConversationSearch | None = None,
        agents: Agents | None = None,
    ) -> None:
        self._tools = tools
        self._clock = clock
        self._max_result = max_result
        self._search = search
        self._agents = agents

    async def __call__(self, effect: ExecuteTool, context: EffectContext) -> ToolAnswer:
        """Run the call, and answer with its result, or with the questions that it asks."""
        call = await context.call(effect.call)
        tool, why_not = self._tools.find_in(context.context, context.turn, call.name)
        if tool is None:
            # The call was checked by an engine that had the tool, or made by a performer of the application that offers
            # tools of its own; this engine was opened without it, or the conversation or its role may not use it.
            unknown = ToolResult(text=why_not, error=True)
            return ToolComplete(effect_id=effect.effect_id, at=self._clock.now(), result=unknown)
        run = ToolRun(tool, context.policy, self._max_result, context.redact, may_ask=effect.call.exclusive)
        tool_context = partial(
            tool_context_of, call.call_id, context, effect.effect_id, effect.first_id, self._search, self._agents
        )
        return answer_of(effect, run, await run.start(call.raw_arguments, tool_context), context, self._clock)


class ResumptionPerformer:
    """Carries out `ResumeTool`, for the calls that wait in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, effect: ResumeTool, context: EffectContext) -> ToolAnswer | ToolAborted | ToolReconciled:
        """Pass the reply on to the call, and answer as if it had just been started; or stop it."""
        run = context.suspended.take(effect.started_as)
        if not isinstance(run, ToolRun):
            return self._lost(effect)
        if effect.reply == "cancelled":
            await run.stop()
            return ToolAborted(effect_id=effect.effect_id, at=self._clock.now())
        answers = Answers.read(await context.words(effect.said)) if effect.said else Answers(effect.reply)
        show = tool_context_of(effect.call.call_id, context, effect.effect_id, effect.started_as).progress
        return answer_of(effect, run, await run.resume(answers, show), context, self._clock)

    def _lost(self, effect: ResumeTool) -> ToolAborted | ToolReconciled:
        """The call does not wait here: another process has begun it. Its crash contract decides."""
        effect_id, at = effect.effect_id, self._clock.now()
        if effect.call.crash not in REPEATABLE:
            return ToolReconciled(effect_id=effect_id, at=at, verdict="unknown")
        if effect.reply == "cancelled":
            return ToolAborted(effect_id=effect_id, at=at)
        return ToolReconciled(effect_id=effect_id, at=at, verdict="did_not_run")


def answer_of(
    effect: ExecuteTool | ResumeTool,
    run: ToolRun,
    outcome: ToolOutcome | Suspended,
    context: EffectContext,
    clock: Clock,
) -> ToolAnswer:
    """The answer to an effect whose call came to this. A call that waits is held until it is resumed."""
    effect_id, at = effect.effect_id, clock.now()
    if isinstance(outcome, ToolResult):
        return unvalidated(ToolComplete, effect_id=effect_id, at=at, result=outcome)
    suspends = isinstance(outcome, Suspended)
    if suspends:
        context.suspended.hold(effect.first_id, run)
    return AskUserQuestionPending(effect_id=effect_id, at=at, questions=outcome.questions, suspends=suspends)
