"""Turns whatever comes of a call of a tool into one result for the model, or into questions for the user.

A tool function may raise, hang or return something unexpected. Each of these becomes the result of its call. A value
becomes the text that a model reads, and the files that it is shown beside it; of acts the result says whether they are
carried out, and why not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from ...states.errors import InvalidInput, StoreError, TurnwiseError
from ...states.policy import Policy
from ...states.values.acts import Act, ActKind, AgentMail, Speech, SubAgents, Transfer, WorkComplete
from ...states.values.files import FileReference
from ...states.values.messages import ToolResult
from ...states.values.value import MAX_SENTENCE, encodable, shortened
from ..application_functions import Outcome, Raised, Returned
from ..context import Redact, unchanged
from ..files import NO_FILES, File, GivenFile, KeptFiles
from ..logs import performer_logger
from ..text import encodable_json
from .context import Question, ToolError
from .normalization import describe_fault, is_about_acts
from .tool import AnyTool, cut_result

ToolOutcome = ToolResult | Question
"""The outcome of a call: a result for the model, or questions for the user."""

_LOGGER = performer_logger("turnwise.tools")


async def outcome_of(
    tool: AnyTool,
    outcome: Outcome | None,
    policy: Policy,
    max_stored: int,
    redact: Redact = unchanged,
    files: KeptFiles = NO_FILES,
) -> ToolOutcome:
    """What the model reads of a call that ended like this, or what its tool asks the user; None for a call that did not
    end in time. Secrets are replaced by `redact` in a text that is cut, and `files` keep what the model is shown
    beside it. Never raises."""
    result = _tool_outcome(tool, outcome, policy, redact)
    if isinstance(result, Question):
        return result
    if isinstance(result, ResultWithFiles):
        result = await _with_kept_files(tool, result, files)
    return await cut_result(result, max_stored, redact)


def _tool_outcome(
    tool: AnyTool, outcome: Outcome | None, policy: Policy, redact: Redact
) -> ToolOutcome | ResultWithFiles:
    match outcome:
        case None:
            _LOGGER.warning("%s did not finish within %g s", tool.name, tool.timeout)
            return error_result(f"{tool.name} did not finish within {tool.timeout:g} s.")
        case Raised(error):
            return _outcome_of_error(tool, error, redact)
        case Returned(value):
            return _outcome_of_value(tool, value, policy)


def _outcome_of_error(tool: AnyTool, error: BaseException, redact: Redact) -> ToolResult:
    if isinstance(error, ToolError) and (words := _message(error)).strip():
        _LOGGER.info("%s failed, and told the model why", tool.name)
        return ToolResult(text=encodable(words), error=True)
    _LOGGER.warning("%s failed", tool.name, exc_info=error)
    sentence = shortened(f"{tool.name} failed: {_reason(tool, error)}", 2 * MAX_SENTENCE)
    return error_result(redact(sentence))


def _outcome_of_value(tool: AnyTool, value: object, policy: Policy) -> ToolOutcome | ResultWithFiles:
    if isinstance(value, str):  # as most tools return
        return _result_of_value(tool, value)
    if isinstance(value, ResultWithFiles):
        return value
    if isinstance(value, ToolResult):
        _log_undeclared(tool, {act.type for act in value.acts})
        return value
    if isinstance(value, Question):
        is_declared = not _log_undeclared(tool, {value.kind})
        undeclared = f"{tool.name} may not ask the user: it does not declare that it asks."
        return value if is_declared else error_result(undeclared)
    if (acts := _acts_in(value)) is not None:
        _log_undeclared(tool, {act.type for act in acts})
        return ToolResult(text=_acknowledgement_of(acts, policy), acts=acts)
    return _result_of_value(tool, value)


def _log_undeclared(tool: AnyTool, kinds: Iterable[ActKind]) -> bool:
    """Write to the log if the tool did not declare acts of these kinds, which the model then reads as an error; return
    whether that is so."""
    undeclared = sorted(set(kinds) - set(tool.acts))
    if undeclared:
        wanted = ", ".join(f'"{kind}"' for kind in undeclared)
        _LOGGER.error("%s returned an act that it does not declare: it needs acts=[%s]", tool.name, wanted)
    return bool(undeclared)


def _result_of_value(tool: AnyTool, value: object) -> ToolResult | ResultWithFiles:
    try:
        return result_of(value)
    except ValidationError as error:
        return error_result(f"{tool.name} failed: {describe_fault(error)}")
    except Exception as error:
        _LOGGER.warning("The result of %s cannot be written", tool.name, exc_info=error)
        return error_result(f"{tool.name} returned something that cannot be written as JSON.")


def _reason(tool: AnyTool, error: BaseException) -> str:
    """What the model reads of an exception: its class. Its message may hold what is not meant for the model. So that is
    told only where the tool allows it, or where turnwise itself says what is wrong with a question, an act or a file.
    The traceback is in the log."""
    if isinstance(error, ValidationError) and (tool.errors == "message" or is_about_acts(error)):
        return describe_fault(error)
    if isinstance(error, TurnwiseError):
        return error.sentence
    kind = type(error).__name__
    if tool.errors == "message":
        line = _message(error).strip().partition("\n")[0]
        return line if line and not line.startswith("Traceback ") else kind
    return f"{kind}. What went wrong is in the log of the application."


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # `__str__` may be code of the application
        return ""


def error_result(sentence: str) -> ToolResult:
    """The result of a call that failed for this reason. `Pure.`"""
    return ToolResult(text=shortened(encodable(sentence)), error=True)


DONE = "Done."
"""The result of a tool that returns nothing. An empty text would look like a failure."""


@dataclass(frozen=True)
class ResultWithFiles:
    """A result whose files are yet to be stored."""

    text: str
    files: tuple[GivenFile, ...]
    error: bool = False


def result_of(value: object) -> ToolResult | ResultWithFiles:
    """The result for this value.

    A `File` is shown to the model, and so is each file in a list; the other values of the list become the text, with
    blank lines between them. Raises what `text_of` raises. `Pure.`
    """
    values = value if isinstance(value, list | tuple) else [value]
    files = tuple(item for item in values if isinstance(item, File | FileReference))
    if not files:
        return ToolResult(text=text_of(value))
    text = "\n\n".join(text_of(item) for item in values if not isinstance(item, File | FileReference))
    return ResultWithFiles(text, files)


_TRIES = 3
_PAUSE = 1.0
"""How often the files of a result are tried to be stored, and the seconds between the tries: the tool has run, and what
it returned exists only here."""

NOT_STORED = "[The files that the tool returned could not be stored.]"


async def _with_kept_files(tool: AnyTool, result: ResultWithFiles, files: KeptFiles) -> ToolResult:
    """Store the files of a result. What cannot be used is an error; what the disk does not take is left out."""
    for left in reversed(range(_TRIES)):
        try:
            kept = await files.keep(result.files)
            return ToolResult(text=result.text, files=kept, error=result.error)
        except InvalidInput as invalid:
            return error_result(f"{tool.name} failed: {invalid.sentence}")
        except StoreError as failure:
            _LOGGER.warning("The files that %s returned could not be stored: %s", tool.name, failure)
            if left:
                await asyncio.sleep(_PAUSE)
    text = "\n\n".join(filter(None, (result.text, NOT_STORED)))
    return ToolResult(text=text, error=result.error)


def text_of(value: object) -> str:
    """A string as it is, None as "Done.", anything else as JSON: pydantic models, dataclasses, dicts, numbers, ….

    A value that JSON does not know is written by `str`. Lone surrogates are replaced. Raises `TypeError` for an
    iterator, and whatever a value raises that cannot be written. `Pure.`
    """
    if value is None:
        return DONE
    if isinstance(value, str):
        return encodable(str.__str__(value))
    if isinstance(value, Iterator):
        raise TypeError("an iterator may never end")
    try:
        return to_json(value, fallback=str, inf_nan_mode="strings").decode()
    except PydanticSerializationError:  # a lone surrogate, or an error that is raised again below
        return encodable_json(json.dumps(value, default=_jsonable, allow_nan=False))


def _jsonable(value: object) -> object:
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def _acts_in(value: object) -> tuple[Act, ...] | None:
    """The acts, if a tool returned one, or a list of them; None for any other value. `Pure.`"""
    items = value if isinstance(value, list | tuple) and value else (value,)
    are_acts = all(isinstance(item, Speech | WorkComplete | AgentMail | SubAgents | Transfer) for item in items)
    return tuple(items) if are_acts else None


def _acknowledgement_of(acts: Sequence[Act], policy: Policy) -> str:
    """The result that the model reads of acts that are carried out.

    Of speech it says whether the user has it already, of a claim of completed work what the claim depends on. `Pure.`
    """
    texts, keeps_last = policy.texts, policy.speech.keep == "last"
    delivery_times = {act.when for act in acts if isinstance(act, Speech)}
    if "turn_end" in delivery_times:
        return success(texts.recorded_last if keeps_last else texts.recorded)
    if delivery_times:
        return success(texts.acknowledgement)
    return success(texts.claimed if any(isinstance(act, WorkComplete) for act in acts) else "")


def success(message: str) -> str:
    """The result of an act that succeeded, as JSON; an empty message is left out. `Pure.`"""
    return json.dumps({"success": True, **({"message": message} if message else {})}, ensure_ascii=False)


def refusal(sentence: str) -> str:
    """The result of an act that is not carried out, as JSON with the reason. `Pure.`"""
    return json.dumps({"success": False, "error": sentence}, ensure_ascii=False)
