"""Decides whether a person must approve a call, and writes what that person is to see.

A tool may leave that to a function of its arguments: small payments run, large ones wait. The function is asked when
the call arrives, and its decision is stored on the call. If it fails, the call waits for a person.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence

from ...states.errors import ConfigurationError
from ...states.policy import Policy
from ...states.values.messages import ToolCall
from ...states.values.value import json_object
from ..application_functions import is_coroutine_function
from ..logs import performer_logger
from ..printable import with_hidden_shown
from .arguments.argument_errors import InvalidArguments, NothingToSay
from .arguments.arguments import Arguments
from .arguments.callables import signature_of

Approval = bool | Callable[..., bool]
"""Whether each call needs approval, or a function of the arguments of a call that says so."""

_LOGGER = performer_logger("turnwise.tools")


def check_approval(approval: object, tool: str, names: Sequence[str]) -> None:
    """Raise ConfigurationError for what is neither a bool nor a plain function of parameters that have these names."""
    if isinstance(approval, bool):
        return
    if not callable(approval) or inspect.isclass(approval):
        raise ConfigurationError(f"The approval of {tool} must be true, false or a function of its arguments.")
    if is_coroutine_function(approval) or inspect.isgeneratorfunction(approval):
        raise ConfigurationError(f"The approval of {tool} must be a plain function: it decides at once.")
    known = set(names)
    for parameter in signature_of(approval).parameters.values():
        is_unnamed = parameter.kind is parameter.POSITIONAL_ONLY
        is_known = parameter.name in known and not is_unnamed
        is_optional = parameter.default is not parameter.empty or parameter.kind in _ANY_NUMBER
        if not is_known and not is_optional:
            raise ConfigurationError(
                f"The approval of {tool} needs {parameter.name}, which is not among the arguments of the tool."
            )


_ANY_NUMBER = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def needs_approval(tool: str, approval: Approval, arguments: Arguments, text: str, policy: Policy) -> bool:
    """Whether a call of the tool with these arguments, JSON text, needs the approval of a person. Never raises."""
    if isinstance(approval, bool):
        return approval
    try:
        values = arguments.under(policy).values(text)
        decision: object = approval(**_taken(approval, values))
    except (InvalidArguments, NothingToSay):
        return True  # such a call does not run
    except KeyboardInterrupt:
        raise  # it is meant for the program, and comes while any function runs
    except BaseException as error:  # SystemExit or CancelledError of the function must not end the request
        _LOGGER.warning("The approval of %s failed, so a person must approve the call", tool, exc_info=error)
        return True
    if isinstance(decision, bool):
        return decision
    kind = type(decision).__name__
    _LOGGER.warning("The approval of %s returned %s, not a bool, so a person must approve the call", tool, kind)
    if inspect.iscoroutine(decision):
        decision.close()
    return True


def _taken(approval: Callable[..., bool], values: dict[str, object]) -> dict[str, object]:
    """Those of the arguments that the function takes."""
    parameters = inspect.signature(approval).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}


def shown_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as JSON on one line, or as the model wrote them if that is no JSON object, with
    what is hidden in them marked. `Pure.`"""
    arguments = json_object(call.raw_arguments)
    written = call.raw_arguments if arguments is None else json.dumps(arguments, ensure_ascii=False)
    return with_hidden_shown(written)
