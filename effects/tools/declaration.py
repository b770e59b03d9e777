"""Declares a function of an application as a tool.

Name, description and arguments come from the function itself, unless they are given. A function that a model could not
call is refused here, in one sentence, so that the mistake shows when the program starts and not in a conversation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from ...states.errors import ConfigurationError
from ...states.values.acts import ActKind
from ...states.values.messages import Approver, CrashContract
from ...states.values.value import encodable
from ..application_functions import innermost
from .approval import Approval
from .arguments.arguments import Arguments
from .arguments.callables import definition_of, docstring_of, name_of, signature_of
from .arguments.docstrings import read_docstring
from .arguments.schema_arguments import SchemaArguments
from .arguments.typed_arguments import TypedArguments
from .methods import RECEIVER_NAMES, Receiver, is_in_its_class_body, is_unbound_method, names_of_caller, unbound_method
from .tool import AnyTool, ErrorDetail, Tool

P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """What can be declared of several tools at once. `tool` explains each of them."""

    crash: CrashContract
    approval: Approval
    approval_by: Approver
    exclusive: bool
    acts: Iterable[ActKind]
    timeout: float
    errors: ErrorDetail
    max_result: int | None


class Options(ToolOptions, total=False):
    """What can be declared of a tool. `tool` explains each of them."""

    name: str | None
    description: str | None
    parameters: Mapping[str, Any] | None
    reconcile: Callable[..., Any] | None


@overload
def tool(function: Callable[P, R], /, **options: Unpack[Options]) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, `@tool(crash="pure", timeout=5)`, or `tool(function, name="find")`.

    - `name`: the name that the model sees; the function's own by default.
    - `description`: what the model reads of the tool; by default the docstring, without its section of parameters.
    - `parameters`: a JSON schema of the arguments, in place of the types of the function. It goes to the model as it
      is, and the function gets what the model wrote, by name: no default of the schema is filled in.
    - `crash`: what may happen to a call that was running when the process died. `pure` and `idempotent` may run again,
      the latter under the same key; `reconcile` can be asked whether it ran; `at_most_once`, the default, never runs
      twice.
    - `reconcile`: the function that is asked whether a call ran. It takes the arguments of the call, as the tool does,
      and has the same timeout; the `key` of its `ToolContext` is the one under which the call ran. It returns
      `"did_not_run"`, `"ran"`, a `ToolResult` if it ran with this result, or `"unknown"`. If it returns `"unknown"` or
      fails, a person is asked.
    - `approval`: whether a person must approve each call; or a plain function that takes arguments of the call, by the
      names that they have in the tool, and returns true or false. It is asked once, when the call arrives, and must not
      wait for anything. If it fails, the call needs approval.
    - `approval_by`: who may approve a call. With `"user"`, the default, whoever uses the conversation; with
      `"operator"` only somebody who acts for the application, and not a user to whom a host has given no permission for
      it (`create_app(allow={"approvals"})`). Without an `approval` every call needs one then.
    - `exclusive`: it runs alone in its round.
    - `acts`: what it may do by what it returns: `"speech"` (`Speech`), `"work_complete"` (`WorkComplete`), `"mail"`
      (`AgentMail`), `"children"` (`SubAgents`), `"transfer"` (`Transfer`), `"question"` (`Question`). A tool that asks,
      spawns, hands over or speaks at once must be `exclusive`.
    - `timeout`: seconds that a call may take; 60 by default.
    - `errors`: what the model reads of an exception other than `ToolError`: `"type"`, the default, its class;
      `"message"` the first line of its message, too, which may hold what is not meant for the model.
    - `max_result`: the most characters of a result. Of a longer one the model reads the beginning and the end. By
      default that of the engine, `Settings.max_result`.

    The function may be a coroutine function or a plain one, which then runs in a thread of its own; a bound method, an
    object that can be called, a cached function or a partial. Every parameter needs a type; `Annotated[…,
    Field(description=…)]` or the docstring describes it, a default makes it optional, and one of type `ToolContext` is
    filled by the engine. A method that is declared in its class becomes a tool when it is taken from an object.

    The model reads what the function returns: a text as it is, an `Image` or a list with images as images, anything
    else as JSON. For an act, or a list of acts, it reads that they are carried out. `ToolError` tells it what went
    wrong.

    When the turn is cancelled or the engine closes, a coroutine is cancelled. It has a second to clean up; if it
    returns in that time, its result counts. A thread cannot be stopped: it is abandoned.

    Raises ConfigurationError, with the name of the function and the parameter, if a model could not call it.
    """
    if function is not None:
        return make_tool(function, names=names_of_caller(1), **options)
    check_options(options, Options, "tool")

    def decorate(function: Callable[..., Any]) -> AnyTool:
        return make_tool(function, names=names_of_caller(1), **options)

    return decorate


def make_tool(given: Any, *, names: Mapping[str, object] | None = None, **options: Any) -> AnyTool:
    """Make a function a tool, as `tool` does. `names` are local names that annotations written as strings may use."""
    check_options(options, Options, "tool")
    if isinstance(given, Tool):
        raise ConfigurationError(f"{given.name} is a tool already.")
    function, receives = _function_and_receiver(given)
    definition_of(function)
    reconcile, name, description, schema = (options.pop(key, None) for key in _OF_ONE_TOOL)
    name = name_of(function) if name is None else name
    arguments, docstring = _arguments(function, schema, names, receives)
    if "approval_by" in options:
        options.setdefault("approval", True)
    if reconcile is not None:
        timeout = options.get("timeout", 60.0)
        reconcile = make_tool(reconcile, names=names, name=name, parameters=schema, timeout=timeout)
    return Tool(
        name=name,
        description=encodable(docstring) if description is None else description,
        arguments=arguments,
        function=function,
        acts=_acts(options.pop("acts", ()), name),
        reconcile=reconcile,
        receives=receives,
        **options,
    )


_OF_ONE_TOOL = ("reconcile", "name", "description", "parameters")


def check_options(options: Mapping[str, object], known: type[Any], function: str) -> None:
    """Raise ConfigurationError for an option that is not known, with the name that was probably meant."""
    names = known.__annotations__.keys()
    for option in options:
        if option not in names:
            from difflib import get_close_matches  # only this error needs it

            close = get_close_matches(option, sorted(names), n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(sorted(names))}."
            raise ConfigurationError(f"{function} has no option called {option}. {hint}")


def _function_and_receiver(given: Any) -> tuple[Any, Receiver | None]:
    """The function, and what its first parameter receives if it is a method whose class body is running now."""
    if isinstance(given, staticmethod):
        return given.__func__, None
    if isinstance(given, classmethod):
        return given.__func__, "class"
    method = innermost(given)
    if not is_unbound_method(method) or next(iter(signature_of(given).parameters), "") not in RECEIVER_NAMES:
        return given, None
    if is_in_its_class_body(method):
        return given, "instance"
    raise unbound_method(method)


def _arguments(
    function: Callable[..., Any],
    schema: Mapping[str, Any] | None,
    names: Mapping[str, object] | None,
    receives: Receiver | None,
) -> tuple[Arguments, str]:
    """The arguments that a model gives, and the description in the docstring."""
    called = function if receives is None else functools.partial(function, None)  # the receiver is not for the model
    if schema is not None:
        given = SchemaArguments(called, schema, names)
        return given, read_docstring(docstring_of(function), given.names).description
    typed = TypedArguments(called, names)
    return typed, typed.docstring.description


def _acts(acts: Any, name: str) -> tuple[ActKind, ...]:
    listed = tuple(acts) if isinstance(acts, Iterable) else (None,)
    if all(isinstance(act, str) for act in listed):
        return listed
    raise ConfigurationError(f"The acts of {name} must be a list of texts.")
