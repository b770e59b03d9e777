"""Reads from a function what it can be called with.

A model fills parameters by name and can only send JSON, so every parameter needs a name and a type. A function that a
model could not call is refused when it is made a tool, not when it is called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from ...states.errors import ConfigurationError
from .context import ToolContext

_UNNAMED = {
    inspect.Parameter.POSITIONAL_ONLY: "can only be given by position, but a model gives arguments by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, but a model needs to be told which",
    inspect.Parameter.VAR_KEYWORD: "takes any name, but a model needs to be told which",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter: its resolved type, and its default or `inspect.Parameter.empty`."""

    name: str
    annotation: Any
    default: Any

    @property
    def is_context(self) -> bool:
        """Whether the runner fills it, not the model."""
        return ToolContext in (self.annotation, *get_args(self.annotation))


def underlying(function: object) -> Any:
    """The plain function that holds name, docstring and types. Raises ConfigurationError if there is none.

    Functions, bound methods and `functools.partial` of them are taken.
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not (inspect.isfunction(inner) or inspect.ismethod(inner)):
        raise ConfigurationError("A tool must be made of a function, a bound method or a functools.partial of these.")
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigurationError(f"The function {inner.__name__} is a generator, but a tool returns one result.")
    return inner


def parameters_of(function: Callable[..., Any], names: Mapping[str, object]) -> tuple[Parameter, ...]:
    """The parameters, in order, less those that a partial has already filled.

    `names` are names visible where the function is defined besides its module's: types written as text may use them.
    Raises ConfigurationError, naming function and parameter, for one that a model could not fill.
    """
    inner = underlying(function)
    filled = function.keywords if isinstance(function, functools.partial) else {}
    declared = inspect.signature(function).parameters.values()
    return tuple(_parameter(inner, each, names) for each in declared if each.name not in filled)


def _parameter(function: Any, declared: inspect.Parameter, names: Mapping[str, object]) -> Parameter:
    about = f"The parameter {declared.name} of {function.__name__}"
    if declared.kind in _UNNAMED:
        raise ConfigurationError(f"{about} {_UNNAMED[declared.kind]}.")
    if declared.annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"{about} has no type.")
    try:
        annotation = _resolved(function, declared.annotation, names)
    except Exception as error:
        raise ConfigurationError(f"{about} has a type that is not known when the program runs.") from error
    return Parameter(declared.name, annotation, declared.default)


def _resolved(function: Any, annotation: object, names: Mapping[str, object]) -> Any:
    written = SimpleNamespace(__annotations__={"it": annotation})
    visible = inspect.unwrap(function).__globals__
    return get_type_hints(written, globalns=visible, localns=dict(names), include_extras=True)["it"]
