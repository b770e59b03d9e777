"""The tools of an engine, and what is known of each call that a model makes.

A transition looks nothing up. Whether a tool exists, whether the arguments fit, and how the tool may run is found out
when the response arrives, and stored on the call. So a log replays without the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...states.errors import ConfigurationError
from ...states.policy.policy import Policy
from ...states.values.acts import ActKind
from ...states.values.messages import ToolCall
from ...states.values.surrogates import encodable
from ...states.values.value import shortened
from ..model.port import ModelCall
from .arguments.argument_errors import InvalidArguments
from .arguments.arguments import normalize
from .builtin.catalogue import BUILT_IN, bare_name, names_of
from .declaration import make_tool
from .tool import AnyTool, Tool

_POLICY = Policy()

_MAX_NAME = 100
"""The most characters of a tool's name that an error sentence repeats."""

_NO_TOOLS = "There are no tools."

Allowed: TypeAlias = Collection[str] | None
"""The names of some of the tools; None stands for all of them."""


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
        self._definitions = {name: tool.definition() for name, tool in self._tools.items()}

    def find(self, name: str, allowed: Allowed = None) -> AnyTool | None:
        """The tool that this name means, or None: a call in an older log may name a tool that no longer exists.

        A tool is found by its own name first. A built-in tool is also found by its other names, and by each of these
        behind the name of a server, as in `x:respond_to_user`.
        """
        known = self._names(allowed)
        return next((self._tools[name] for name in (name, *names_of(name)) if name in known), None)

    def find_given(self, given: str | Callable[..., Any]) -> AnyTool | None:
        """The tool that an application means by a name, by the tool, or by the function that it was made of."""
        if isinstance(given, str):
            return self.find(given)
        function = given.function if isinstance(given, Tool) else given
        return next((tool for tool in self._tools.values() if tool is given or tool.function == function), None)

    def allowed(self, *choices: Iterable[str] | None) -> frozenset[str]:
        """The names of the tools that each of these choices contains; a choice that is None contains all of them. A
        name that means no tool is left out."""
        chosen = [{tool.name for name in names if (tool := self.find(name))} for names in choices if names is not None]
        return frozenset(self._tools).intersection(*chosen)

    def name_of(self, tool: AnyTool, allowed: Allowed = None) -> str:
        """The name under which this tool is offered, which may be another of its names; empty if it is not offered. A
        tool of the application that has the same name is another tool."""
        offered = (self._tools[name] for name in self._names(allowed))
        return next((one.name for one in offered if one.function is tool.function), "")

    def acts_of(self, allowed: Allowed = None) -> frozenset[ActKind]:
        """The kinds of act that these tools declare."""
        return frozenset(act for name in self._names(allowed) for act in self._tools[name].acts)

    def definitions(self, allowed: Allowed = None) -> tuple[dict[str, Any], ...]:
        """These tools as they are offered to a model, in the order in which they were given. Always the same objects:
        do not change them."""
        return tuple(self._definitions[name] for name in self._names(allowed))

    def resolve_calls(
        self, effect_id: int, calls: Sequence[ModelCall], policy: Policy = _POLICY, allowed: Allowed = None
    ) -> tuple[ToolCall, ...]:
        """The calls of the response to the effect `effect_id`, with what is known of them now. Never raises.

        `policy` holds the rules under which the calls are made; a call of a tool that is not `allowed` has a `fault`. A
        call has the name under which its tool is offered, whichever of the tool's names the model used.

        A call's id is `call_<effect id>_<index>`, so it is unique in the conversation, whatever the provider sent.
        Arguments that are too long to be stored become `{}`, and `fault` says so.
        """
        ids = (f"call_{effect_id}_{index}" for index in range(len(calls)))
        return tuple(self._resolve(call_id, call, policy, allowed) for call_id, call in zip(ids, calls, strict=True))

    def describe_unknown(self, name: str, allowed: Allowed = None) -> str:
        """The sentence that says that there is no tool of this name, or that it is not allowed, and which tools are."""
        given, known = shortened(name, _MAX_NAME) or "(no name)", ", ".join(self._names(allowed))
        if self.find(name) is None:
            return shortened(f"There is no tool called {given}. {f'Known: {known}.' if known else _NO_TOOLS}")
        return shortened(f"{given} is not available here. {f'Available: {known}.' if known else _NO_TOOLS}")

    def _names(self, allowed: Allowed) -> Collection[str]:
        """The names of these tools, in the order in which they were given."""
        return self._tools if allowed is None else [name for name in self._tools if name in allowed]

    def _resolve(self, call_id: str, call: ModelCall, policy: Policy, allowed: Allowed) -> ToolCall:
        name = encodable(call.name)
        tool = self.find(name, allowed)
        unknown = self.describe_unknown(name, allowed) if tool is None else ""
        arguments, fault = self._check(tool, unknown, call.arguments, policy)
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

    def _check(self, tool: AnyTool | None, unknown: str, arguments: str, policy: Policy) -> tuple[str, str | None]:
        """The arguments as they are stored, and what is wrong with the call: `unknown` if there is no tool for it."""
        stored = "{}"
        try:
            stored = normalize(arguments)
            if tool is None:
                return stored, unknown
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
