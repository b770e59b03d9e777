"""The tools of an engine, and what is known of each call that a model makes.

A transition must not look anything up: whether a tool exists, whether the arguments fit and how it may run are
facts of the moment in which the response enters, so they are written on the call and stored with it. A log replays
without the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...states.errors import ConfigurationError
from ...states.policy.policy import Policy
from ...states.values.acts import ActKind
from ...states.values.messages import ToolCall
from ...states.values.value import shortened
from ..model.port import ModelCall
from ..text import encodable
from .argument_errors import InvalidArguments
from .arguments import normalized
from .builtin.registry import BUILT_IN, bare_name, names_of
from .tool import AnyTool, Tool, make_tool

_POLICY = Policy()

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
        """The tool that this name means, or None: a call of an older log may name a tool that is gone (case P35).

        A name means the tool that has it. Other names of a built-in tool, and such names behind that of a server
        (`x:respond_to_user`), mean the one of them that is here (case S16).
        """
        return next((self._tools[one] for one in (name, *names_of(name)) if one in self._tools), None)

    def name_of(self, tool: AnyTool) -> str:
        """The name under which this tool, or the same under another name, is here; empty if it is not. A host's own
        tool of that name is another tool."""
        return next((one.name for one in self._tools.values() if one.function is tool.function), "")

    @property
    def acts(self) -> frozenset[ActKind]:
        """The kinds of act that the tools declare."""
        return frozenset(act for tool in self._tools.values() for act in tool.acts)

    def definitions(self) -> tuple[dict[str, Any], ...]:
        """The tools as they are offered to a model, in the order given. The same objects each time: do not change."""
        return self._definitions

    def enter(self, effect_id: int, calls: Sequence[ModelCall], policy: Policy = _POLICY) -> tuple[ToolCall, ...]:
        """The calls of the response to the effect `effect_id`, with what is known of them now. Never raises.

        `policy` holds the rules under which the calls are made. A call goes by the name under which its tool is here,
        whichever of its names the model used.

        A call's id is `call_<effect id>_<place>`: unique in the conversation, whatever the provider sent (case P29).
        Arguments too long to be kept are stored as `{}`, beside the fault that says so.
        """
        return tuple(self._enter(f"call_{effect_id}_{place}", call, policy) for place, call in enumerate(calls))

    def unknown(self, name: str) -> str:
        """The sentence that says that there is no tool of this name, and which there are."""
        known = f"Known: {', '.join(self._tools)}." if self._tools else "There are no tools."
        return shortened(f"There is no tool called {shortened(name, _MAX_NAME) or '(no name)'}. {known}")

    def _enter(self, call_id: str, call: ModelCall, policy: Policy) -> ToolCall:
        name = encodable(call.name)
        tool = self.find(name)
        arguments, fault = self._checked(name, tool, call.arguments, policy)
        entered = ToolCall(call_id=call_id, name=name, arguments=arguments, provider_id=encodable(call.id), fault=fault)
        if tool is None:
            return entered
        known = {
            "name": tool.name,
            "approval": tool.approval,
            "exclusive": tool.exclusive,
            "crash": tool.crash,
            "acts": tool.acts,
        }
        return entered.model_copy(update=known)

    def _checked(self, name: str, tool: AnyTool | None, arguments: str, policy: Policy) -> tuple[str, str | None]:
        """The arguments as they are kept, and what is wrong with the call."""
        kept = "{}"
        try:
            kept = normalized(arguments)
            if tool is None:
                return kept, self.unknown(name)
            tool.arguments.under(policy).check(kept)
        except InvalidArguments as invalid:
            return kept, invalid.sentence
        return kept, None


def _tool(given: AnyTool | Callable[..., Any] | str) -> AnyTool:
    if isinstance(given, Tool):
        return given
    if not isinstance(given, str):
        return make_tool(given)
    name = bare_name(given)
    if name not in BUILT_IN:
        raise ConfigurationError(f"There is no built-in tool called {given}. Known: {', '.join(BUILT_IN)}.")
    return BUILT_IN[name]
