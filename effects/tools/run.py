"""Runs one call of a tool, and makes of whatever happens one outcome.

A tool is foreign code: it may raise, hang, refuse to stop or return something odd. None of that may reach the
conversation but as the result of this call, within bounded time.
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
from .acts import Question, acknowledge, acts_in, success
from .argument_errors import InvalidArguments, fault
from .builtin.speech_arguments import NothingToSay
from .calling import Ending, Raised, Returned, ending_of
from .context import ToolContext
from .results import result_of
from .tool import AnyTool

ToolOutcome = ToolResult | Question
"""What comes of a call: a text for the model, with images or without, or an act."""

MAX_RESULT = 1_000_000
"""The most characters of a result. Ours: more than any model reads."""

_LOGGER = logging.getLogger("turnwise.tools")
_POLICY = Policy()


async def run(tool: AnyTool, arguments_json: str, context: ToolContext, policy: Policy = _POLICY) -> ToolOutcome:
    """Run the tool with these arguments, JSON text as the model wrote it. What goes wrong is an error result.

    `policy` words what the model reads of a tool that only acts, and says how strictly one that speaks is read.

    Ends in time, and raises nothing but CancelledError, as `ending_of` says.
    """
    progress = _Progress(context.progress)
    try:
        arguments = tool.arguments.under(policy).read(arguments_json, replace(context, progress=progress))
        ending = await ending_of(tool, arguments)
    except InvalidArguments as invalid:
        return _error(invalid.sentence)
    except NothingToSay:
        return ToolResult(text=success(policy.texts.acknowledgement))
    finally:
        progress.over = True
    return _outcome(tool, ending, policy)


class _Progress:
    """Shows progress, from whichever thread it comes, on the loop; nothing more once the call is over."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self.over = False

    def __call__(self, line: str) -> None:
        self._loop.call_soon_threadsafe(self._forward, line)

    def _forward(self, line: str) -> None:
        if not self.over:
            self._show(line)


def _outcome(tool: AnyTool, ending: Ending | None, policy: Policy) -> ToolOutcome:
    match ending:
        case None:
            _LOGGER.warning("%s did not finish within %g s", tool.name, tool.timeout)
            return _error(f"{tool.name} did not finish within {tool.timeout:g} s.")
        case Raised(error):
            _LOGGER.warning("%s failed", tool.name, exc_info=error)
            return _error(f"{tool.name} failed: {_reason(error)}")
        case Returned(value):
            return _meant(tool, value, policy)


def _meant(tool: AnyTool, value: object, policy: Policy) -> ToolOutcome:
    """What a tool says by returning this."""
    if isinstance(value, ToolResult):
        return within_bounds(tool, value)
    if isinstance(value, Question):
        declared = value.kind in tool.acts
        return value if declared else _error(f"{tool.name} may not ask the user: it does not declare that it asks.")
    if (acts := acts_in(value)) is not None:
        return ToolResult(text=acknowledge(acts, policy), acts=acts)
    return _told(tool, value)


def within_bounds(tool: AnyTool, result: ToolResult) -> ToolResult:
    """The result, or an error in its place if no model would read it to the end. `Pure.`"""
    if len(result.text) > MAX_RESULT:
        return _error(f"{tool.name} returned more than {MAX_RESULT} characters.")
    return result


def _told(tool: AnyTool, value: object) -> ToolResult:
    """The text and the images that a tool returned."""
    try:
        return within_bounds(tool, result_of(value))
    except ValidationError as error:
        return _error(f"{tool.name} failed: {_reason(error)}")
    except Exception as error:
        _LOGGER.warning("The result of %s cannot be written", tool.name, exc_info=error)
        return _error(f"{tool.name} returned something that cannot be written as JSON.")


def _reason(error: BaseException) -> str:
    """The first line of what the exception says, or its class. The traceback is in the log."""
    if isinstance(error, ValidationError):
        return fault(error)
    try:
        said = str(error).strip().partition("\n")[0]
    except BaseException:  # foreign code, again
        said = ""
    return said if said and not said.startswith("Traceback ") else type(error).__name__


def _error(sentence: str) -> ToolResult:
    return ToolResult(text=shortened(encodable(sentence)), error=True)
