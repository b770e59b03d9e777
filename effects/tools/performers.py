"""Runs tools: finds them, passes the arguments that the model wrote, and turns the outcome into an event.

The function of a tool is called so that it can neither block nor break the engine, within the tool's timeout. A call
that asks the user does not end: its function waits, and nobody waits for the function. Its conversation holds it
meanwhile, and another effect resumes it: `_ToolRun.resume` passes on what the user did, and waits again for the
function to ask or to end.

If the process died while a call ran, only its tool can find out what became of it. Only a clear answer counts: if the
tool fails, hangs or returns something unexpected, the answer is "unknown", and a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from ...states.effects import ExecuteTool, ReconcileTool, ResumeTool
from ...states.events import AskUserQuestionPending, ToolAborted, ToolComplete, ToolReconciled
from ...states.policy import Policy
from ...states.values.messages import REPEATABLE, ToolResult
from ...states.values.questions import QuestionSet
from ..agents import Agents
from ..application_functions import Outcome, Raised, Returned, attempt
from ..clock import Clock
from ..context import EffectContext, Redact, unchanged
from ..files import NO_FILES, KeptFiles
from ..logs import performer_logger
from ..recall.search import ConversationSearch
from ..text import in_thread_if_long
from .context import Answers, Asking, Progress, ToolContext, tool_context_of
from .normalization import InvalidArguments, NothingToSay
from .registry import ToolRegistry
from .results import ToolOutcome, error_result, outcome_of, success
from .tool import MAX_STORED, AnyTool, cut_result

_ToolAnswer = ToolComplete | AskUserQuestionPending
"""The answer to an effect that runs a tool."""


class ToolPerformer:
    """Carries out `ExecuteTool`. `max_stored` is the most characters that are stored of a result."""

    def __init__(
        self,
        tools: ToolRegistry,
        clock: Clock,
        max_stored: int = MAX_STORED,
        search: ConversationSearch | None = None,
        agents: Agents | None = None,
    ) -> None:
        self._tools = tools
        self._clock = clock
        self._max_stored = max_stored
        self._search = search
        self._agents = agents

    async def __call__(self, effect: ExecuteTool, context: EffectContext) -> _ToolAnswer:
        """Run the call, and answer with its result, or with the questions that it asks."""
        call = await context.call(effect.call)
        tool, why_not = self._tools.find_in(context.context, context.turn, call.name)
        if tool is None:
            # The call was checked by an engine that had the tool, or made by a performer of the application that offers
            # tools of its own; this engine was opened without it, or the conversation or its role may not use it.
            unknown = ToolResult(text=why_not, error=True)
            return ToolComplete(effect_id=effect.effect_id, at=self._clock.now(), result=unknown)
        run = _ToolRun(
            tool,
            context.policy,
            self._max_stored,
            context.redact,
            context.files,
            may_ask=effect.call.exclusive,
        )
        tool_context = partial(
            tool_context_of, call.call_id, context, effect.effect_id, effect.first_id, self._search, self._agents
        )
        return _answer_of(effect, run, await run.start(call.raw_arguments, tool_context), context, self._clock)


class ResumptionPerformer:
    """Carries out `ResumeTool`, for the calls that wait in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, effect: ResumeTool, context: EffectContext) -> _ToolAnswer | ToolAborted | ToolReconciled:
        """Pass the reply on to the call, and answer as if it had just been started; or stop it."""
        run = context.suspended.release(effect.started_as)
        if not isinstance(run, _ToolRun):
            return self._lost(effect)
        if effect.reply == "cancelled":
            await run.stop()
            return ToolAborted(effect_id=effect.effect_id, at=self._clock.now())
        answers = Answers.read(await context.words(effect.said)) if effect.said else Answers(effect.reply)
        show = tool_context_of(effect.call.call_id, context, effect.effect_id, effect.started_as).progress
        return _answer_of(effect, run, await run.resume(answers, show), context, self._clock)

    def _lost(self, effect: ResumeTool) -> ToolAborted | ToolReconciled:
        """The call does not wait here: another process has begun it. Its crash contract decides."""
        effect_id, at = effect.effect_id, self._clock.now()
        if effect.call.crash not in REPEATABLE:
            return ToolReconciled(effect_id=effect_id, at=at, verdict="unknown")
        if effect.reply == "cancelled":
            return ToolAborted(effect_id=effect_id, at=at)
        return ToolReconciled(effect_id=effect_id, at=at, verdict="did_not_run")


def _answer_of(
    effect: ExecuteTool | ResumeTool,
    run: _ToolRun,
    outcome: ToolOutcome | _Suspended,
    context: EffectContext,
    clock: Clock,
) -> _ToolAnswer:
    """The answer to an effect whose call came to this. A call that waits is held until it is resumed."""
    effect_id, at = effect.effect_id, clock.now()
    if isinstance(outcome, ToolResult):
        return ToolComplete(effect_id=effect_id, at=at, result=outcome)
    suspends = isinstance(outcome, _Suspended)
    if suspends:
        context.suspended.hold(effect.first_id, run)
    return AskUserQuestionPending(effect_id=effect_id, at=at, questions=outcome.questions, suspends=suspends)


_LONG_ARGUMENTS = 10_000
"""The most characters of arguments that are checked in the event loop. Longer ones take up to a second, so they are
checked in a thread, while other conversations go on."""

_POLICY = Policy()
_MAY_NOT_ASK = "may not ask the user while it runs: it must be declared with exclusive=True."


@dataclass(frozen=True)
class _Suspended:
    """A call that asks the user these questions, and waits."""

    questions: QuestionSet


async def execute(
    tool: AnyTool,
    arguments_json: str,
    context: ToolContext,
    policy: Policy = _POLICY,
    max_stored: int = MAX_STORED,
    redact: Redact = unchanged,
    files: KeptFiles = NO_FILES,
) -> ToolOutcome:
    """Run the tool with these arguments, JSON text as the model wrote it. A failure is an error result. The call cannot
    ask the user while it runs.

    `policy` has the texts for the results of acts, and says how strictly the arguments of speaking tools are read.
    `max_stored` is how many characters a result may have; a longer one is cut, after `redact` has replaced the secrets
    in it. `files` keep what the model is shown beside it.
    Ends in time, and raises only CancelledError, as `_call_function` describes.
    """
    outcome = await _ToolRun(tool, policy, max_stored, redact, files, may_ask=False).start(
        arguments_json, lambda: context
    )
    assert not isinstance(outcome, _Suspended), "it may not ask"
    return outcome


class _ToolRun:
    """One call of a tool. Make it in the event loop of the engine, and call `start` once."""

    def __init__(
        self,
        tool: AnyTool,
        policy: Policy,
        max_stored: int = MAX_STORED,
        redact: Redact = unchanged,
        files: KeptFiles = NO_FILES,
        *,
        may_ask: bool,
    ) -> None:
        self._tool = tool
        self._policy = policy
        self._max_stored = max_stored
        self._redact = redact
        self._files = files
        self._asking = Asking(None if may_ask else f"{tool.name} {_MAY_NOT_ASK}")
        self._progress = Progress()
        self._function: FunctionCall

    async def start(self, arguments_json: str, context: Callable[[], ToolContext]) -> ToolOutcome | _Suspended:
        """Run the tool with these arguments until it ends or asks the user. `context` makes the context of the call,
        which most functions do not take."""
        try:
            arguments = await self._read(arguments_json, context)
        except InvalidArguments as invalid:
            return error_result(invalid.sentence)
        except NothingToSay:
            return ToolResult(text=success(self._policy.texts.acknowledgement))
        self._function = FunctionCall(self._tool, arguments)
        return await self._advance()

    async def _read(self, arguments_json: str, context: Callable[[], ToolContext]) -> dict[str, object]:
        declared = self._tool.arguments.under(self._policy)
        read = partial(declared.values, arguments_json)
        if declared.takes_context:
            given = context()
            self._progress.show = given.progress
            own = replace(given, progress=self._progress, asking=self._asking)
            read = partial(declared.read, arguments_json, own)
        return await in_thread_if_long(len(arguments_json), read, _LONG_ARGUMENTS)

    async def resume(self, answers: Answers, show: Callable[[str], None]) -> ToolOutcome | _Suspended:
        """Pass on what the user did, and go on until the call ends or asks again. `show` shows its progress."""
        self._progress.show = show
        self._asking.reply(answers, self._redact)
        return await self._advance()

    async def stop(self) -> None:
        """Stop a call that waits for the user."""
        self._end()
        await self._function.stop()

    async def _advance(self) -> ToolOutcome | _Suspended:
        try:
            while isinstance(outcome := await self._function.wait(self._asking.is_waiting), _Paused):
                if (questions := self._asking.take_next()) is not None:
                    return _Suspended(questions)
        except BaseException:
            self._end()
            raise
        self._end()
        return await outcome_of(self._tool, outcome, self._policy, self._max_stored, self._redact, self._files)

    def _end(self) -> None:
        self._progress.close()
        self._asking.close()


GRACE = 1.0
"""Seconds that a cancelled coroutine gets to clean up before it is abandoned. Chosen to be longer than an ordinary
clean-up, and short enough for a user who waits."""


class _Paused:
    """The function has not ended, and its time has not run out: something else was waited for, too, and has come."""


_PAUSED = _Paused()


async def _call_function(tool: AnyTool, arguments: dict[str, object]) -> Outcome | None:
    """Call the tool's function, and return how the call ended; None if it did not end within the tool's timeout.

    Takes at most that timeout and `GRACE`. Raises only CancelledError, when the caller's task is cancelled: a coroutine
    is then cancelled and awaited for `GRACE`, a thread is abandoned. If a coroutine returns all the same, its outcome
    is returned and the cancel has no effect.
    """
    outcome = await FunctionCall(tool, arguments).wait()
    assert not isinstance(outcome, _Paused), "nothing else is waited for"
    return outcome


class FunctionCall:
    """A call of the tool's function, which begins at once. Its time runs only while somebody waits for it."""

    def __init__(self, tool: AnyTool, arguments: dict[str, object]) -> None:
        self._seconds_left = tool.timeout
        self._awaited: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._attempt(tool, partial(tool.function, **arguments)))
        self._task.add_done_callback(self._wake)  # code of the application may cancel the task before it begins

    async def _attempt(self, tool: AnyTool, call: Callable[[], object]) -> Outcome:
        """Make the call, and then wake who waits: a callback of the task does that an iteration of the event loop
        later."""
        outcome = await attempt(f"tool {tool.name}", call, is_coroutine=tool.is_coroutine_function)
        self._wake()
        return outcome

    async def wait(self, other: asyncio.Future[None] | None = None) -> Outcome | _Paused | None:
        """Return how the call ended; `_PAUSED` as soon as `other` is done; None if the time of the call runs out first,
        and then the call is stopped. If the waiting task is cancelled, so is the call, as `_call_function` says."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds_left
        try:
            if not self._task.done():
                await self._first(other, due)
            if not self._task.done():
                self._seconds_left = max(0.0, due - loop.time())
                if other is not None and other.done():
                    return _PAUSED
                await self.stop()
                return None
            return self._outcome()
        except asyncio.CancelledError:
            await self.stop()
            if self._task.done() and isinstance(outcome := self._outcome(), Returned):
                return outcome
            raise

    async def _first(self, other: asyncio.Future[None] | None, due: float) -> None:
        """Return when the function has ended, when `other` is done, or when it is `due`."""
        loop = asyncio.get_running_loop()
        self._awaited = loop.create_future()
        timer = loop.call_at(due, self._wake)
        if other is not None:
            other.add_done_callback(self._wake)
        try:
            await self._awaited
        finally:
            timer.cancel()
            if other is not None:
                other.remove_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def stop(self) -> None:
        """Cancel the function, and wait until it has ended, for at most `GRACE`."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=GRACE)

    def _outcome(self) -> Outcome:
        return Raised(asyncio.CancelledError()) if self._task.cancelled() else self._task.result()


Verdict = Literal["ran", "did_not_run", "unknown"]
"""What a tool can say of a call that a crash interrupted."""


class ReconciliationPerformer:
    """Carries out `ReconcileTool`."""

    def __init__(self, tools: ToolRegistry, clock: Clock, max_stored: int = MAX_STORED) -> None:
        self._tools = tools
        self._clock = clock
        self._max_stored = max_stored

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
            outcome = await _call_function(tool.reconcile, arguments)
        finally:
            progress.close()
        match outcome:
            case Returned(ToolResult() as result):
                return await cut_result(result, self._max_stored, context.redact)
            case Returned("ran" | "did_not_run" | "unknown" as verdict):
                return verdict
            case _:
                logger.warning("%s could not say what became of a call: %s", tool.name, outcome)
                return "unknown"


logger: Final = performer_logger("turnwise.tools")
