"""Makes a function of a host program a tool that a model may call.

Name, description and arguments come from the function itself, as a reader of its definition would expect. What the
function cannot say is declared: what may happen to a call if the process dies in the middle of it (`crash`), whether
a person must allow it (`approval`), whether it must run alone (`exclusive`), what it may ask of the conversation
(`acts`), and how long it may take.
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
from .acts import NEEDS_TO_BE_ALONE
from .arguments import Arguments
from .signature import underlying

P = ParamSpec("P")
R = TypeVar("R")

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
"""What every provider takes as the name of a tool."""


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function that a model may call. It can still be called like the function that it was made of.

    `timeout` is in seconds. Raises ConfigurationError for declarations that cannot hold.
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
        self._look_like_the_function()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns."""
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
        alone = ", ".join(sorted(NEEDS_TO_BE_ALONE.intersection(self.acts)))
        yield self.exclusive or not alone, f"{self.name} declares {alone}, so it must be exclusive."
        yield (
            (self.reconcile is not None) == (self.crash == "reconcile"),
            f"The crash contract of {self.name} is reconcile if, and only if, it names a function that can be asked.",
        )
        yield _is_time(self.timeout), f"The timeout of {self.name} must be a number of seconds above 0."

    def _look_like_the_function(self) -> None:
        """What functools.wraps does; through the dictionary, since a frozen value takes no attributes."""
        inner = underlying(self.function)
        theirs: dict[str, Any] = dict(vars(inner))
        theirs.update((name, getattr(inner, name)) for name in functools.WRAPPER_ASSIGNMENTS if hasattr(inner, name))
        vars(self).update({**theirs, "__wrapped__": self.function, **vars(self)})


AnyTool = Tool[..., Any]
"""Any tool, whatever it takes and returns."""


def _is_legal(name: object) -> bool:
    return isinstance(name, str) and _LEGAL_NAME.fullmatch(name) is not None


def _is_time(seconds: object) -> bool:
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
    - `reconcile`: the function that is asked. It takes the arguments of the call, as the tool does, and has the same
      timeout; the `key` of its `ToolContext` is the one under which the call ran. It returns `"did_not_run"`, `"ran"`,
      a `ToolResult` if it ran with this result, or `"unknown"`; then a person is asked, as they are if it fails.
    - `approval`: a person must allow each call.
    - `exclusive`: it runs alone in its round.
    - `acts`: what it may do by what it returns: `"speech"` (`Speech`), `"work_complete"` (`WorkComplete`), `"mail"`
      (`AgentMail`), `"children"` (`SubAgents`), `"question"`. What asks, spawns or speaks at once must be `exclusive`.
    - `timeout`: seconds that a call may take; 60 by default.

    The function may be a coroutine function or a plain one, which then runs in a thread of its own. Every parameter
    needs a type; `Annotated[…, Field(description=…)]` describes it, a default makes it optional, and one of type
    `ToolContext` is filled by the engine. The docstring is the description that the model reads.

    What it returns is what the model reads: a text as it is, an `Image` or a list with images as images, anything else
    as JSON. Of an act, or several in a list, it reads that they are carried out.

    A coroutine whose turn is cancelled, or whose engine closes, is cancelled. It has a second to clean up; if it
    returns in that time it has finished, and its result counts. A thread cannot be stopped: it is left to itself.

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
    """What `tool` does, for a function at hand. `names` are local names that its types, written as text, may use."""
    inner = underlying(function)
    name = inner.__name__ if name is None else name
    return Tool(
        name=name,
        description=inspect.getdoc(inner) or "",
        arguments=Arguments(function, names),
        function=function,
        acts=tuple(acts),
        timeout=timeout,
        reconcile=None if reconcile is None else make_tool(reconcile, names=names, name=name, timeout=timeout),
        **declared,
    )


def _names_of_caller() -> Mapping[str, object]:
    """What is visible where the decorator stands: a tool defined inside a function may use types defined there."""
    return sys._getframe(2).f_locals
