"""What a tool may be made of, and where its name, its docstring and its types are found.

Applications hand over more than plain functions: bound methods, partials, cached functions, objects that can be called.
Each of them leads to one definition, the function whose text somebody wrote.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ....states.errors import ConfigurationError
from ...application_functions import innermost

NOT_CALLABLE = "A tool must be made of a function, a method or an object that can be called."


def definition_of(function: object) -> Any:
    """The function that has the types of the parameters. Raises ConfigurationError if nothing here can be called as a
    tool: a class, a generator function, or a dict, which needs a function that does the work."""
    called = innermost(function)
    if isinstance(called, Mapping):
        raise ConfigurationError(
            "A tool cannot be made of a dict, which does no work: give its schema with a function, "
            "as in tool(function, name=…, parameters=schema)."
        )
    if inspect.isclass(called):
        raise ConfigurationError(f"{called.__name__} is a class: give one of its methods, or an instance to call.")
    if not callable(called):
        raise ConfigurationError(NOT_CALLABLE)
    definition = _written(called)
    _check_callable_by_name(called, definition)
    return definition


def name_of(function: object) -> str:
    """The name that a tool made of this gets: that of the function, or of the class of an object. `Pure.`"""
    called = innermost(function)
    name = getattr(called, "__name__", None)
    return name if isinstance(name, str) else type(called).__name__


def docstring_of(function: object) -> str:
    """The docstring of the function; of an object that is called, that of its `__call__` or else of its class.
    `Pure.`"""
    called = innermost(function)
    if inspect.isroutine(called) or hasattr(called, "__wrapped__"):
        found = [inspect.getdoc(called)]
    else:  # not by `getdoc`, which finds that of any function
        found = [
            source.__doc__ and inspect.cleandoc(source.__doc__) for source in (type(called).__call__, type(called))
        ]
    return next((text for text in found if isinstance(text, str) and text.strip()), "")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters, without those that a partial or an object has already given. Raises ConfigurationError if Python
    cannot tell them, as for some functions that are written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The parameters of {name_of(function)} are not known to Python.") from error


def module_names_of(definition: object) -> dict[str, Any]:
    """The names of the module in which the function was written. `Pure.`"""
    names = getattr(inspect.unwrap(definition), "__globals__", {})  # type: ignore[arg-type]
    return names if isinstance(names, dict) else {}


def _written(called: Any) -> Any:
    """The function or method behind a cached function, or behind an object that is called."""
    if inspect.isroutine(called):
        return called
    if hasattr(called, "__wrapped__"):
        return inspect.unwrap(called)
    return called.__call__


def _check_callable_by_name(called: Any, definition: Any) -> None:
    name, is_cached = name_of(called), hasattr(called, "cache_info")
    plain = inspect.unwrap(called) if is_cached else definition
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(f"The function {name} is a generator, but a tool returns one result.")
    if is_cached and inspect.iscoroutinefunction(plain):
        raise ConfigurationError(
            f"The function {name} caches coroutines, each of which can be awaited only once: cache what it awaits."
        )
    if hasattr(called, "dispatch") and hasattr(called, "registry"):
        raise ConfigurationError(
            f"The function {name} is chosen by the type of an argument that is given by position, "
            "but a model gives arguments by name."
        )
