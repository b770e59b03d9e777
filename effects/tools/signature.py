"""Reads the parameters of a function.

A model gives arguments by name, as JSON, so every parameter needs a name and a type. A function that a model could not
call is refused when it is made a tool, not when it is called.
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
    """A parameter with its resolved type, and its default or `inspect.Parameter.empty`."""

    name: str
    annotation: Any
    default: Any

    @property
    def is_context(self) -> bool:
        """Whether the engine fills it, not the model."""
        return ToolContext in (self.annotation, *get_args(self.annotation))


def plain_function_of(function: object) -> Any:
    """The plain function that has the name, the docstring and the types. Raises ConfigurationError if there is none.

    Functions, bound methods and `functools.partial` of them are accepted.
    """
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not (inspect.isfunction(plain) or inspect.ismethod(plain)):
        raise ConfigurationError("A tool must be made of a function, a bound method or a functools.partial of these.")
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(f"The function {plain.__name__} is a generator, but a tool returns one result.")
    return plain


def parameters_of(function: Callable[..., Any], names: Mapping[str, object]) -> tuple[Parameter, ...]:
    """The parameters, in order, without those that a partial has already filled.

    `names` are names that are visible where the function is defined, besides those of its module; annotations that are
    strings may use them. Raises ConfigurationError, naming function and parameter, for one that a model could not fill.
    """
    plain = plain_function_of(function)
    filled = function.keywords if isinstance(function, functools.partial) else {}
    declared = inspect.signature(function).parameters.values()
    return tuple(_parameter(plain, parameter, names) for parameter in declared if parameter.name not in filled)


def _parameter(function: Any, declared: inspect.Parameter, names: Mapping[str, object]) -> Parameter:
    about = f"The parameter {declared.name} of {function.__name__}"
    if declared.kind in _UNNAMED:
        raise ConfigurationError(f"{about} {_UNNAMED[declared.kind]}.")
    if declared.annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"{about} has no type.")
    try:
        annotation = _resolve(function, declared.annotation, names)
    except Exception as error:
        raise ConfigurationError(f"{about} has a type that is not known when the program runs.") from error
    return Parameter(declared.name, annotation, declared.default)


def _resolve(function: Any, annotation: object, names: Mapping[str, object]) -> Any:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    module_names = inspect.unwrap(function).__globals__
    return get_type_hints(holder, globalns=module_names, localns=dict(names), include_extras=True)["it"]
