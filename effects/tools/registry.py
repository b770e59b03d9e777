"""The tools of an engine, and what is known of each call that a model makes.

A transition must not look anything up: whether a tool exists, whether the arguments fit and how it may run are
facts of the moment in which the response enters, so they are written on the call and stored with it. A log replays
without the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...states.errors import ConfigurationError
from ...states.messages import ToolCall
from ...states.value import shortened
from ..model.port import ModelCall
from ..text import encodable
from .arguments import normalized
from .builtin import BUILT_IN
from .faults import InvalidArguments
from .tool import AnyTool, Tool, make_tool

_MAX_NAME = 100
"""The most characters of a name that a fault repeats."""


class ToolRegistry:
    """Tools by name: each a `Tool`, a function to make one of, or the name of a built-in tool.

    Raises ConfigurationError for a name that is unknown or stands twice, and for a function that cannot be a tool.
    """

    def __init__(self, tools: Iterable[AnyTool | Callable[..., Any] | str] = ()) -> None:
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            raise ConfigurationError("Tools must be given as a list.")
        self._tools: dict[str, AnyTool] = {}
        for given in tools:
            tool = _tool(given)
            if tool.name in self._tools:
                raise ConfigurationError(f"There are two tools called {tool.name}.")
            self._tools[tool.name] = tool
        self._definitions = tuple(tool.definition() for tool in self._tools.values())

    def find(self, name: str) -> AnyTool | None:
        """The tool of this name, or None: a call of an older log may name a tool that is gone (case P35)."""
        return self._tools.get(name)

    def definitions(self) -> tuple[dict[str, Any], ...]:
        """The tools as they are offered to a model, in the order given. The same objects each time: do not change."""
        return self._definitions

    def enter(self, effect_id: int, calls: Sequence[ModelCall]) -> tuple[ToolCall, ...]:
        """The calls of the response to the effect `effect_id`, with what is known of them now. Never raises.

        A call's id is `call_<effect id>_<place>`: unique in the conversation, whatever the provider sent (case P29).
        Arguments too long to be kept are stored as `{}`, beside the fault that says so.
        """
        return tuple(self._enter(f"call_{effect_id}_{place}", call) for place, call in enumerate(calls))

    def unknown(self, name: str) -> str:
        """The sentence that says that there is no tool of this name, and which there are."""
        known = f"Known: {', '.join(self._tools)}." if self._tools else "There are no tools."
        return shortened(f"There is no tool called {shortened(name, _MAX_NAME) or '(no name)'}. {known}")

    def _enter(self, call_id: str, call: ModelCall) -> ToolCall:
        name = encodable(call.name)
        arguments, fault = self._checked(name, call.arguments)
        entered = ToolCall(call_id=call_id, name=name, arguments=arguments, provider_id=encodable(call.id), fault=fault)
        tool = self.find(name)
        if tool is None:
            return entered
        known = {"approval": tool.approval, "exclusive": tool.exclusive, "crash": tool.crash, "acts": tool.acts}
        return entered.model_copy(update=known)

    def _checked(self, name: str, arguments: str) -> tuple[str, str | None]:
        """The arguments as they are kept, and what is wrong with the call."""
        kept, tool = "{}", self.find(name)
        try:
            kept = normalized(arguments)
            if tool is None:
                return kept, self.unknown(name)
            tool.arguments.check(kept)
        except InvalidArguments as invalid:
            return kept, invalid.sentence
        return kept, None


def _tool(given: AnyTool | Callable[..., Any] | str) -> AnyTool:
    if isinstance(given, Tool):
        return given
    if not isinstance(given, str):
        return make_tool(given)
    if given not in BUILT_IN:
        raise ConfigurationError(f"There is no built-in tool called {given}. Known: {', '.join(BUILT_IN)}.")
    return BUILT_IN[given]
