"""Runs one call of a tool, and turns whatever happens into one result.

A tool function may raise, hang, refuse to stop or return something unexpected. Each of these becomes the result of its
call, within bounded time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from pydantic import ValidationError

from ...states.policy.policy import Policy
from ...states.values.messages import ToolResult
from ...states.values.value import shortened
from ..text import encodable
from .act_results import acknowledgement_of, acts_in, success
from .argument_errors import InvalidArguments, NothingToSay, describe_fault
from .context import ToolContext
from .isolation import Outcome, Raised, Returned, call_function
from .question import Question
from .results import result_of
from .tool import AnyTool

ToolOutcome = ToolResult | Question
"""The outcome of a call: a result for the model, or questions for the user."""

MAX_RESULT = 1_000_000
"""The most characters of a result: more than any model can read."""

_LOGGER = logging.getLogger("turnwise.tools")
_POLICY = Policy()


async def execute(tool: AnyTool, arguments_json: str, context: ToolContext, policy: Policy = _POLICY) -> ToolOutcome:
    """Run the tool with these arguments, JSON text as the model wrote it. A failure is an error result.

    `policy` has the texts for the results of acts, and says how strictly the arguments of speaking tools are read. Ends
    in time, and raises only CancelledError, as `call_function` describes.
    """
    progress = _Progress(context.progress)
    try:
        arguments = tool.arguments.under(policy).read(arguments_json, replace(context, progress=progress))
        outcome = await call_function(tool, arguments)
    except InvalidArguments as invalid:
        return _error(invalid.sentence)
    except NothingToSay:
        return ToolResult(text=success(policy.texts.acknowledgement))
    finally:
        progress.is_over = True
    return _tool_outcome(tool, outcome, policy)


class _Progress:
    """Forwards progress from any thread to the event loop, until the call is over."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self.is_over = False

    def __call__(self, line: str) -> None:
        self._loop.call_soon_threadsafe(self._forward, line)

    def _forward(self, line: str) -> None:
        if not self.is_over:
            self._show(line)


def _tool_outcome(tool: AnyTool, outcome: Outcome | None, policy: Policy) -> ToolOutcome:
    match outcome:
        case None:
            _LOGGER.warning("%s did not finish within %g s", tool.name, tool.timeout)
            return _error(f"{tool.name} did not finish within {tool.timeout:g} s.")
        case Raised(error):
            _LOGGER.warning("%s failed", tool.name, exc_info=error)
            return _error(f"{tool.name} failed: {_reason(error)}")
        case Returned(value):
            return _outcome_of_value(tool, value, policy)


def _outcome_of_value(tool: AnyTool, value: object, policy: Policy) -> ToolOutcome:
    if isinstance(value, ToolResult):
        return limit_length(tool, value)
    if isinstance(value, Question):
        is_declared = value.kind in tool.acts
        return value if is_declared else _error(f"{tool.name} may not ask the user: it does not declare that it asks.")
    if (acts := acts_in(value)) is not None:
        return ToolResult(text=acknowledgement_of(acts, policy), acts=acts)
    return _result_of_value(tool, value)


def limit_length(tool: AnyTool, result: ToolResult) -> ToolResult:
    """The result, or an error in its place if it is too long. `Pure.`"""
    if len(result.text) > MAX_RESULT:
        return _error(f"{tool.name} returned more than {MAX_RESULT} characters.")
    return result


def _result_of_value(tool: AnyTool, value: object) -> ToolResult:
    try:
        return limit_length(tool, result_of(value))
    except ValidationError as error:
        return _error(f"{tool.name} failed: {_reason(error)}")
    except Exception as error:
        _LOGGER.warning("The result of %s cannot be written", tool.name, exc_info=error)
        return _error(f"{tool.name} returned something that cannot be written as JSON.")


def _reason(error: BaseException) -> str:
    """The first line of the error's message, or the name of its class. The traceback is in the log."""
    if isinstance(error, ValidationError):
        return describe_fault(error)
    try:
        line = str(error).strip().partition("\n")[0]
    except BaseException:  # `__str__` may be code of the application
        line = ""
    return line if line and not line.startswith("Traceback ") else type(error).__name__


def _error(sentence: str) -> ToolResult:
    return ToolResult(text=shortened(encodable(sentence)), error=True)
