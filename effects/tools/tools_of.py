"""Makes tools of all that an object offers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any, Unpack

from ...states.errors import ConfigurationError
from .declaration import ToolOptions, check_options, make_tool
from .methods import names_of_caller
from .tool import AnyTool, Tool


def tools_of(owner: object, /, **options: Unpack[ToolOptions]) -> list[AnyTool]:
    """Make each public method of an object a tool: `tools=[*tools_of(calendar, timeout=5), …]`.

    Public are the methods whose names do not begin with an underscore, inherited ones included, in the order in which
    they are written, those of base classes first; each tool has the name of its attribute. Properties are not read. The
    options are those of `tool` that several
    tools can share; a method that was declared with `@tool` keeps its own.

    Raises ConfigurationError for an object without such methods, and for a method that a model could not call.
    """
    check_options(options, ToolOptions, "tools_of")
    if inspect.isclass(owner):
        raise ConfigurationError(f"tools_of takes an object, and {owner.__name__} is a class: make an instance of it.")
    names = names_of_caller(1)
    taken = ((name, getattr(owner, name)) for name in _methods(type(owner)))
    tools = [one if isinstance(one, Tool) else make_tool(one, names=names, name=name, **options) for name, one in taken]
    if not tools:
        raise ConfigurationError(f"An object of the class {type(owner).__name__} has no public methods.")
    return tools


def _methods(kind: type[Any]) -> Iterator[str]:
    """Yield the names of the public methods of a class."""
    bases = [base for base in reversed(kind.__mro__) if base is not object]
    names = dict.fromkeys(name for base in bases for name in vars(base) if not name.startswith("_"))
    return (name for name in names if _is_method(inspect.getattr_static(kind, name)))


def _is_method(attribute: object) -> bool:
    if isinstance(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    is_cached = hasattr(attribute, "cache_info")
    return inspect.isfunction(attribute) or is_cached or isinstance(attribute, Tool | functools.partialmethod)
