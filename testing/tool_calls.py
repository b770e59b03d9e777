"""Calls of the application's own tools, as a model makes them.

A call is what the engine stores of it: checked by the tool, with the declarations of the tool. So a test that uses
these calls meets the approvals, the faults and the order of rounds that conversations will meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..states.values.messages import ToolCall
from .strategies.arguments import values_of

if TYPE_CHECKING:  # the kit loads tools only for a test that gives it some
    from ..effects.tools.registry import ToolRegistry
    from ..effects.tools.tool import AnyTool

AnyTools: TypeAlias = "Iterable[AnyTool | Callable[..., Any] | str]"
"""Tools as `Engine.open(tools=…)` takes them: tools, functions, names of built-in tools."""


def call_of(tool: AnyTool | Callable[..., Any] | str, /, **arguments: Any) -> ToolCall:
    """The call of this tool with these arguments, as an engine records it when a model makes it. Arguments that do not
    fit give a call with a `fault`. Raises ConfigurationError for a function that cannot be a tool."""
    registry = registry_of([tool])
    (known,) = tools_in(registry)
    return _recorded(registry, known.name, json.dumps(arguments))


def calls_of(tools: AnyTools, *, most: int = 3) -> SearchStrategy[tuple[ToolCall, ...]]:
    """Up to `most` calls of these tools, as one response of a model holds them. Most have arguments that fit, which are
    made from the schemas of the tools; some have others."""
    registry = registry_of(tools)
    each = [_calls_of(registry, tool) for tool in tools_in(registry)]
    return st.lists(st.one_of(each), max_size=most).map(tuple) if each else st.just(())


def registry_of(tools: AnyTools) -> ToolRegistry:
    """These tools, as an engine holds them. Raises ConfigurationError."""
    from ..effects.tools.registry import ToolRegistry

    return ToolRegistry(tools)


def tools_in(registry: ToolRegistry) -> list[AnyTool]:
    """The tools of a registry, in the order in which they are offered."""
    found = (registry.find(definition["function"]["name"]) for definition in registry.definitions())
    return [tool for tool in found if tool is not None]


def _calls_of(registry: ToolRegistry, tool: AnyTool) -> SearchStrategy[ToolCall]:
    fitting = values_of(tool.parameters).map(json.dumps).filter(lambda text: _fits(tool, text))
    unfit = st.sampled_from(["{}", "null", '{"unknown": 1}'])
    texts = st.integers(0, 9).flatmap(lambda number: unfit if number == 9 else fitting)
    return texts.map(lambda text: _recorded(registry, tool.name, text))


def _fits(tool: AnyTool, text: str) -> bool:
    from ..effects.tools.normalization import InvalidArguments

    try:
        tool.arguments.check(text)
    except InvalidArguments:
        return False
    return True


def _recorded(registry: ToolRegistry, name: str, arguments: str) -> ToolCall:
    from ..effects.model.port import ModelCall

    (call,) = registry.resolve_calls(0, [ModelCall("", name, arguments)])
    return call
