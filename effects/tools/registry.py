"""The tools of an engine, and what is known of each call that a model makes.

A transition looks nothing up. Whether a tool exists, whether the arguments fit, and how the tool may run is found out
when the response arrives, and stored on the call. So a log replays without the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...states.errors import ConfigurationError
from ...states.policy.policy import Policy
from ...states.values.acts import ActKind
from ...states.values.messages import ToolCall
from ...states.values.value import shortened
from ..model.port import ModelCall
from ..text import encodable
from .arguments.argument_errors import InvalidArguments
from .arguments.arguments import normalize
from .builtin.catalogue import BUILT_IN, bare_name, names_of
from .declaration import make_tool
from .tool import AnyTool, Tool

_POLICY = Policy()

_MAX_NAME = 100
"""The most characters of a tool's name that an error sentence repeats."""


class ToolRegistry:
    """Tools by name. Each is given as a `Tool`, as a function to make one of, or as the name of a built-in tool.

    Raises ConfigurationError for a name that is unknown or given twice, and for a function that cannot be a tool.
    """

    def __init__(self, tools: Iterable[AnyTool | Callable[..., Any] | str] = ()) -> None:
        if isinstance(tools, Mapping):
            raise ConfigurationError("Tools must be given as a list, not as a dict.")
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
        """The tool that this name means, or None: a call in an older log may name a tool that no longer exists.

        A tool is found by its own name first. A built-in tool is also found by its other names, and by each of these
        behind the name of a server, as in `x:respond_to_user`.
        """
        return next((self._tools[known] for known in (name, *names_of(name)) if known in self._tools), None)

    def name_of(self, tool: AnyTool) -> str:
        """The name under which this tool is offered, which may be another of its names; empty if it is not offered. A
        tool of the application that has the same name is another tool."""
        return next((offered.name for offered in self._tools.values() if offered.function is tool.function), "")

    @property
    def acts(self) -> frozenset[ActKind]:
        """The kinds of act that the tools declare."""
        return frozenset(act for tool in self._tools.values() for act in tool.acts)

    def definitions(self) -> tuple[dict[str, Any], ...]:
        """The tools as they are offered to a model, in the order given. Always the same objects: do not change them."""
        return self._definitions

    def resolve_calls(
        self, effect_id: int, calls: Sequence[ModelCall], policy: Policy = _POLICY
    ) -> tuple[ToolCall, ...]:
        """The calls of the response to the effect `effect_id`, with what is known of them now. Never raises.

        `policy` holds the rules under which the calls are made. A call has the name under which its tool is offered,
        whichever of the tool's names the model used.

        A call's id is `call_<effect id>_<index>`, so it is unique in the conversation, whatever the provider sent.
        Arguments that are too long to be stored become `{}`, and `fault` says so.
        """
        return tuple(self._resolve(f"call_{effect_id}_{index}", call, policy) for index, call in enumerate(calls))

    def describe_unknown(self, name: str) -> str:
        """The sentence that says that there is no tool of this name, and which tools there are."""
        known = f"Known: {', '.join(self._tools)}." if self._tools else "There are no tools."
        return shortened(f"There is no tool called {shortened(name, _MAX_NAME) or '(no name)'}. {known}")

    def _resolve(self, call_id: str, call: ModelCall, policy: Policy) -> ToolCall:
        name = encodable(call.name)
        tool = self.find(name)
        arguments, fault = self._check(name, tool, call.arguments, policy)
        resolved = ToolCall(
            call_id=call_id, name=name, raw_arguments=arguments, provider_id=encodable(call.id), fault=fault
        )
        if tool is None:
            return resolved
        declared = {
            "name": tool.name,
            "approval": tool.needs_approval(arguments, policy),
            "exclusive": tool.exclusive,
            "crash": tool.crash,
            "acts": tool.acts,
        }
        return resolved.model_copy(update=declared)

    def _check(self, name: str, tool: AnyTool | None, arguments: str, policy: Policy) -> tuple[str, str | None]:
        """The arguments as they are stored, and what is wrong with the call."""
        stored = "{}"
        try:
            stored = normalize(arguments)
            if tool is None:
                return stored, self.describe_unknown(name)
            tool.arguments.under(policy).check(stored)
        except InvalidArguments as invalid:
            return stored, invalid.sentence
        return stored, None


def _tool(given: AnyTool | Callable[..., Any] | str) -> AnyTool:
    if isinstance(given, Tool):
        given.check_bound()
        return given
    if not isinstance(given, str):
        return make_tool(given)
    name = bare_name(given)
    if name not in BUILT_IN:
        raise ConfigurationError(f"There is no built-in tool called {given}. Known: {', '.join(BUILT_IN)}.")
    return BUILT_IN[name]
