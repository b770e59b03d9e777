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

from ....states.errors import ConfigurationError
from ..context import ToolContext
from .callables import definition_of, module_names_of, name_of, signature_of

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
        return is_context(self.annotation)


def is_context(annotation: object) -> bool:
    """Whether this is the type of a parameter that the engine fills, not the model. `Pure.`"""
    return ToolContext in (annotation, *get_args(annotation))


def parameters_of(function: Callable[..., Any], names: Mapping[str, object]) -> tuple[Parameter, ...]:
    """The parameters, in order, without those that a partial has already filled.

    `names` are names that are visible where the function is defined, besides those of its module; annotations that are
    strings may use them. Raises ConfigurationError, naming function and parameter, for one that a model could not fill.
    """
    definition = definition_of(function)
    return tuple(_parameter(function, definition, declared, names) for declared in declared_parameters(function))


def declared_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters as they are written, without those that a partial has already filled. Raises
    ConfigurationError."""
    filled = function.keywords if isinstance(function, functools.partial) else {}
    declared = signature_of(function).parameters.values()
    return tuple(parameter for parameter in declared if parameter.name not in filled)


def resolved(annotation: object, definition: object, names: Mapping[str, object]) -> Any:
    """The type that an annotation means in the module of `definition`, where `names` are known besides. Raises whatever
    an annotation raises that means nothing."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    known = module_names_of(definition)
    return get_type_hints(holder, globalns=known, localns=dict(names), include_extras=True)["it"]


def _parameter(
    function: object, definition: object, declared: inspect.Parameter, names: Mapping[str, object]
) -> Parameter:
    about = f"The parameter {declared.name} of {name_of(function)}"
    if declared.kind in _UNNAMED:
        raise ConfigurationError(f"{about} {_UNNAMED[declared.kind]}.")
    if declared.annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"{about} has no type.")
    try:
        annotation = resolved(declared.annotation, definition, names)
    except Exception as error:
        raise ConfigurationError(f"{about} has a type that is not known when the program runs.") from error
    return Parameter(declared.name, annotation, declared.default)
