"""Runs one call of a tool, within bounded time, and lets it ask the user meanwhile.

A call that asks does not end: its function waits, and nobody waits for the function. `ToolRun.resume` passes on what
the user did, and waits again for the function to ask or to end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ...states.policy import Policy
from ...states.values.messages import ToolResult
from ...states.values.questions import QuestionSet
from ..long_texts import in_thread_if_long
from ..redact import Redact, unchanged
from .act_results import success
from .arguments.argument_errors import InvalidArguments, NothingToSay
from .asking import Answers, Asking
from .context import ToolContext
from .isolation import FunctionCall, Paused
from .outcomes import ToolOutcome, error_result, outcome_of
from .progress import Progress
from .result_length import MAX_RESULT
from .tool import AnyTool

LONG_ARGUMENTS = 10_000
"""The most characters of arguments that are checked in the event loop. Longer ones take up to a second, so they are
checked in a thread, while other conversations go on."""

_POLICY = Policy()
_MAY_NOT_ASK = "may not ask the user while it runs: it must be declared with exclusive=True."


@dataclass(frozen=True)
class Suspended:
    """A call that asks the user these questions, and waits."""

    questions: QuestionSet


async def execute(
    tool: AnyTool,
    arguments_json: str,
    context: ToolContext,
    policy: Policy = _POLICY,
    max_result: int = MAX_RESULT,
    redact: Redact = unchanged,
) -> ToolOutcome:
    """Run the tool with these arguments, JSON text as the model wrote it. A failure is an error result. The call cannot
    ask the user while it runs.

    `policy` has the texts for the results of acts, and says how strictly the arguments of speaking tools are read.
    `max_result` is how many characters a result may have, unless the tool has a limit of its own; a longer one is cut,
    after `redact` has replaced the secrets in it.
    Ends in time, and raises only CancelledError, as `call_function` describes.
    """
    outcome = await ToolRun(tool, policy, max_result, redact, may_ask=False).start(arguments_json, lambda: context)
    assert not isinstance(outcome, Suspended), "it may not ask"
    return outcome


class ToolRun:
    """One call of a tool. Make it in the event loop of the engine, and call `start` once."""

    def __init__(
        self, tool: AnyTool, policy: Policy, max_result: int = MAX_RESULT, redact: Redact = unchanged, *, may_ask: bool
    ) -> None:
        self._tool = tool
        self._policy = policy
        self._max_result = max_result
        self._redact = redact
        self._asking = Asking(None if may_ask else f"{tool.name} {_MAY_NOT_ASK}")
        self._progress = Progress()
        self._function: FunctionCall

    async def start(self, arguments_json: str, context: Callable[[], ToolContext]) -> ToolOutcome | Suspended:
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
        return await in_thread_if_long(len(arguments_json), read, LONG_ARGUMENTS)

    async def resume(self, answers: Answers, show: Callable[[str], None]) -> ToolOutcome | Suspended:
        """Pass on what the user did, and go on until the call ends or asks again. `show` shows its progress."""
        self._progress.show = show
        self._asking.reply(answers, self._redact)
        return await self._advance()

    async def stop(self) -> None:
        """Stop a call that waits for the user."""
        self._end()
        await self._function.stop()

    async def _advance(self) -> ToolOutcome | Suspended:
        try:
            while isinstance(outcome := await self._function.wait(self._asking.is_waiting), Paused):
                if (questions := self._asking.take_next()) is not None:
                    return Suspended(questions)
        except BaseException:
            self._end()
            raise
        self._end()
        return await outcome_of(self._tool, outcome, self._policy, self._max_result, self._redact)

    def _end(self) -> None:
        self._progress.close()
        self._asking.close()
