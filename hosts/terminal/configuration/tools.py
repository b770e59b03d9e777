"""Finds tools by their names: built-in ones, and functions as package.module:function."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from ....effects.tools.registry import ToolRegistry
from ....states.errors import ConfigurationError
from ....states.policy.policy import Policy
from ....states.values.messages import Message
from ..output.printable import one_line

logger = logging.getLogger("turnwise.terminal")


def tools_named(names: Iterable[str]) -> list[Any]:
    """The tools: `package.module:function` is imported, also from the working directory; any other name is left as
    the name of a built-in tool. Raises `ConfigurationError`."""
    return [_import(name) if ":" in name else name for name in names]


def tools_missing(names: Iterable[str], said: Iterable[Message]) -> list[str]:
    """The tools that were used in what was said, and that are not among those named. Raises `ConfigurationError`."""
    there = ToolRegistry(tools_named(names))
    used = dict.fromkeys(call.name for message in said for call in message.tool_calls if call.fault is None)
    return [name for name in used if there.find(name) is None]


def _import(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise ConfigurationError(f"{name} does not name a tool: write it as package.module:function.")
    try:
        found = attrgetter(attribute)(_module(module_name))
    except AttributeError:
        raise ConfigurationError(f"There is no {attribute} in {module_name}.") from None
    if not callable(found):
        raise ConfigurationError(f"{name} is not a function, so it cannot be a tool.")
    return found


def _module(module_name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module_name)
    except (Exception, SystemExit) as error:
        logger.debug("The module %s could not be imported.", module_name, exc_info=error)
        raise ConfigurationError(_why_not(module_name, error)) from error


def _why_not(module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
        return f"There is no module called {module_name}, neither installed nor in this directory."
    if isinstance(error, ConfigurationError):
        return f"The module {module_name} cannot be imported: {error.sentence}"
    return f"The module {module_name} cannot be imported: {one_line(str(error) or type(error).__name__).rstrip('.')}."


def tools_for(policy: Policy, named: tuple[str, ...]) -> tuple[str, ...]:
    """The names of tools, and those of the built-in ones that the rules need besides. Raises `ConfigurationError`."""
    there = ToolRegistry(tools_named(named))
    return (*named, *(name for name in _needed(policy) if there.find(name) is None))


def _needed(policy: Policy) -> tuple[str, ...]:
    """The tools without which, under these rules, nothing would reach the user, or no turn would end well."""
    if policy.ends_on == "work_complete":
        return "respond_to_user", "mark_work_complete"
    return ("talk",) if policy.text == "thought" and policy.speech.keep == "each" else ()
