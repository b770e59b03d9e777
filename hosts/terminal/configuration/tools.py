"""Finds tools by their names: built-in tools, and functions as package.module:function."""

from __future__ import annotations

import logging
import sys
from collections.abc import Container, Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from ....effects.tools.registry import ToolRegistry
from ....states.errors import ConfigurationError
from ....states.policy import Policy
from ....states.values.messages import Message
from ..output.printable import one_line

logger = logging.getLogger("turnwise.terminal")


def tools_named(names: Iterable[str]) -> list[Any]:
    """Return the tools with these names, for `Engine.open`.

    `package.module:function` is imported, also from the working directory. Any other name stays as it is, because the
    engine knows the built-in tools. Raises `ConfigurationError`.
    """
    return [_import(name) if ":" in name else name for name in names]


def missing_tools(registry: ToolRegistry, servers: Container[str], messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that the messages call and that are not in the registry. A tool of one of the MCP
    `servers` is not missing: it may come back."""
    called = dict.fromkeys(call.name for message in messages for call in message.tool_calls if call.fault is None)
    return [name for name in called if registry.find(name) is None and name.partition(":")[0] not in servers]


def with_required_tools(names: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """Return the names, and behind them those of the built-in tools that the policy requires and that are missing.

    Raises `ConfigurationError`.
    """
    registry = ToolRegistry(tools_named(names))
    return (*names, *(name for name in _required(policy) if registry.find(name) is None))


def _required(policy: Policy) -> tuple[str, ...]:
    """Return the tools without which, under this policy, no text would reach the user or no turn would end well."""
    if policy.ends_on == "work_complete":
        return "respond_to_user", "mark_work_complete"
    return ("talk",) if policy.text == "thought" and policy.speech.keep == "each" else ()


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


def _module(name: str) -> object:
    working_directory = str(Path.cwd())
    if working_directory not in sys.path:
        sys.path.insert(0, working_directory)
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        logger.debug("The module %s could not be imported.", name, exc_info=error)
        raise ConfigurationError(_import_failure(name, error)) from error


def _import_failure(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"There is no module called {name}, neither installed nor in this directory."
    if isinstance(error, ConfigurationError):
        return f"The module {name} cannot be imported: {error.sentence}"
    return f"The module {name} cannot be imported: {one_line(str(error) or type(error).__name__).rstrip('.')}."
