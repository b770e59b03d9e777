"""Makes a function of an application a tool that a model may call.

Name, description and arguments come from the function itself. Everything else is declared: what may happen to a call if
the process dies while it runs (`crash`), whether a person must approve it (`approval`), whether it must run alone
(`exclusive`), what it may ask of the conversation (`acts`), and how long it may take.

The machine knows no tool by its name. A tool that returns an act asks for what only the machine can do, such as waiting
for the user's answer or speaking to the user, and it may return only acts of the kinds that it declares.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

from ...states.errors import ConfigurationError
from ...states.values.acts import ActKind
from ...states.values.messages import CrashContract
from .arguments import Arguments
from .signature import plain_function_of

P = ParamSpec("P")
R = TypeVar("R")

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
"""The names of tools that every provider accepts."""

EXCLUSIVE_ACTS: frozenset[ActKind] = frozenset({"question", "children"})
"""Kinds of act that only an exclusive tool may declare."""


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function that a model may call. It can still be called like the function that it was made of.

    `timeout` is in seconds. Raises ConfigurationError for declarations that contradict each other.
    """

    name: str
    description: str
    arguments: Arguments
    function: Callable[P, R]
    crash: CrashContract = "at_most_once"
    approval: bool = False
    exclusive: bool = False
    acts: tuple[ActKind, ...] = ()
    timeout: float = 60.0
    reconcile: AnyTool | None = None

    def __post_init__(self) -> None:
        for holds, sentence in self._conditions():
            if not holds:
                raise ConfigurationError(sentence)
        self._copy_attributes_of_function()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self.arguments.schema

    def definition(self) -> dict[str, Any]:
        """The tool as it is offered to a model: a function tool of OpenAI's chat completions. `Pure.`"""
        described = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": described}

    def _conditions(self) -> Iterable[tuple[bool, str]]:
        contracts, kinds = get_args(CrashContract), get_args(ActKind)
        yield (
            _is_legal(self.name),
            f"{self.name} cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first.",
        )
        yield self.crash in contracts, f"The crash contract of {self.name} must be one of {', '.join(contracts)}."
        yield set(self.acts) <= set(kinds), f"The acts of {self.name} can only be a list of {', '.join(kinds)}."
        acts = ", ".join(sorted(EXCLUSIVE_ACTS.intersection(self.acts)))
        yield self.exclusive or not acts, f"{self.name} declares {acts}, so it must be exclusive."
        yield (
            (self.reconcile is not None) == (self.crash == "reconcile"),
            f"The crash contract of {self.name} is reconcile if, and only if, it names a function that can be asked.",
        )
        yield _is_timeout(self.timeout), f"The timeout of {self.name} must be a number of seconds above 0."

    def _copy_attributes_of_function(self) -> None:
        """Do what functools.wraps does, through the dictionary, since a frozen dataclass refuses attributes."""
        plain = plain_function_of(self.function)
        copied: dict[str, Any] = dict(vars(plain))
        copied.update((name, getattr(plain, name)) for name in functools.WRAPPER_ASSIGNMENTS if hasattr(plain, name))
        vars(self).update({**copied, "__wrapped__": self.function, **vars(self)})


AnyTool = Tool[..., Any]
"""Any tool, whatever it takes and returns."""


def _is_legal(name: object) -> bool:
    return isinstance(name, str) and _LEGAL_NAME.fullmatch(name) is not None


def _is_timeout(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 < seconds < math.inf


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    crash: CrashContract = "at_most_once",
    approval: bool = False,
    exclusive: bool = False,
    acts: Iterable[ActKind] = (),
    timeout: float = 60.0,
    reconcile: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(crash="pure", timeout=5)`.

    - `name`: the name that the model sees; the function's own by default.
    - `crash`: what may happen to a call that was running when the process died. `pure` and `idempotent` may run again,
      the latter under the same key; `reconcile` can be asked whether it ran; `at_most_once`, the default, never runs
      twice.
    - `reconcile`: the function that is asked whether a call ran. It takes the arguments of the call, as the tool does,
      and has the same timeout; the `key` of its `ToolContext` is the one under which the call ran. It returns
      `"did_not_run"`, `"ran"`, a `ToolResult` if it ran with this result, or `"unknown"`. If it returns `"unknown"` or
      fails, a person is asked.
    - `approval`: a person must approve each call.
    - `exclusive`: it runs alone in its round.
    - `acts`: what it may do by what it returns: `"speech"` (`Speech`), `"work_complete"` (`WorkComplete`), `"mail"`
      (`AgentMail`), `"children"` (`SubAgents`), `"question"`. A tool that asks, spawns or speaks at once must be
      `exclusive`.
    - `timeout`: seconds that a call may take; 60 by default.

    The function may be a coroutine function or a plain one, which then runs in a thread of its own. Every parameter
    needs a type; `Annotated[…, Field(description=…)]` describes it, a default makes it optional, and one of type
    `ToolContext` is filled by the engine. The docstring is the description that the model reads.

    The model reads what the function returns: a text as it is, an `Image` or a list with images as images, anything
    else as JSON. For an act, or a list of acts, it reads that they are carried out.

    When the turn is cancelled or the engine closes, a coroutine is cancelled. It has a second to clean up; if it
    returns in that time, its result counts. A thread cannot be stopped: it is abandoned.

    Raises ConfigurationError, with the name of the function and the parameter, if a model could not call it.
    """
    if function is not None:
        return make_tool(function, names=_names_of_caller(), **declared)

    def decorate(function: Callable[..., Any]) -> AnyTool:
        return make_tool(function, names=_names_of_caller(), **declared)

    return decorate


def make_tool(
    function: Callable[..., Any],
    *,
    names: Mapping[str, object] | None = None,
    name: str | None = None,
    acts: Iterable[ActKind] = (),
    timeout: float = 60.0,
    reconcile: Callable[..., Any] | None = None,
    **declared: Any,
) -> AnyTool:
    """Make a function a tool, as `tool` does. `names` are local names that annotations written as strings may use."""
    plain = plain_function_of(function)
    name = plain.__name__ if name is None else name
    return Tool(
        name=name,
        description=inspect.getdoc(plain) or "",
        arguments=Arguments(function, names),
        function=function,
        acts=tuple(acts),
        timeout=timeout,
        reconcile=None if reconcile is None else make_tool(reconcile, names=names, name=name, timeout=timeout),
        **declared,
    )


def _names_of_caller() -> Mapping[str, object]:
    """The local names where the decorator is used: a tool defined inside a function may use types defined there."""
    return sys._getframe(2).f_locals
