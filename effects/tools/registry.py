"""The tools of an engine, and what is known of each call that a model makes.

A transition looks nothing up. Whether a tool exists, whether the arguments fit, and how the tool may run is found out
when the response arrives, and stored on the call. So a log replays without the tools.

The tools that an engine was opened with stay the same. Those of a `ToolSource` come and go: a snapshot of all tools is
taken again when the version of a source has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from ...states.context import Context
from ...states.errors import ConfigurationError
from ...states.openai_writing import legal_name
from ...states.policy import Policy
from ...states.roles import Caller
from ...states.values.acts import ActKind
from ...states.values.messages import LONGEST_ID, Approver, ToolCall
from ...states.values.value import encodable, shortened
from ..logs import performer_logger
from ..model.port import ModelCall
from ..schemas.names import PropertyNames, property_names_of
from .catalogue import BUILT_IN, READ_RESULT, bare_name, built_in_name, names_of
from .normalization import InvalidArguments, read_object, storable
from .tool import AnyTool, Tool, make_tool

_LOGGER = performer_logger("turnwise.tools")

_POLICY = Policy()

_MAX_NAME = 100
"""The most characters of a tool's name that an error sentence repeats."""

_MAX_LISTED, _MAX_CLOSE = 300, 5
"""How many characters of names such a sentence lists, so that it is not cut off, and how many similar ones first."""

_MAX_FORMER = 10_000
"""The most names of former tools that are kept. Chosen to be more than servers offer, so that memory stays bounded."""

_NO_TOOLS = "There are no tools."

Allowed: TypeAlias = Collection[str] | None
"""The names of some of the tools; None stands for all of them."""

_VERSION = attrgetter("version")

_EVERY = "*"
"""Stands for every tool of a server, behind its prefix: `files:*`."""


class ToolSource(Protocol):
    """Tools whose names begin with the name of their server and a colon, as in `files:read`.

    `version` changes whenever the tools do, and never goes back to an earlier value. All is called by the thread of
    the event loop.
    """

    @property
    def version(self) -> int:
        """A number that changes whenever the tools do."""
        ...

    def tools(self) -> Iterable[AnyTool]:
        """Return the tools that there are now, each with a name of its own."""
        ...

    def owns(self, name: str) -> bool:
        """Whether a tool of this name, if there is one, is a tool of this source."""
        ...

    def approver_of(self, name: str) -> Approver | None:
        """Return who must approve each call of the tool of this name, also while there is none; None if nobody must."""
        ...


@dataclass(frozen=True)
class _Snapshot:
    """The tools as of one version of the sources: by their names, which of them come from sources, as they are offered,
    and by the names under which providers accept them. `built_in` says which of them are built-in tools, and which;
    `renamed` has those that have properties of other names on the wire."""

    version: tuple[int, ...]
    tools: Mapping[str, AnyTool]
    renamed: Mapping[str, PropertyNames]
    of_sources: frozenset[str]
    definitions: Mapping[str, dict[str, Any]]
    names: Mapping[str, str]
    built_in: Mapping[str, str]


class ToolRegistry:
    """Tools by name. Each is given as a `Tool`, as a function to make one of, or as the name of a built-in tool.

    `sources` have further tools. Raises ConfigurationError for a name that is unknown or given twice, and for a
    function that cannot be a tool.
    """

    def __init__(
        self, tools: Iterable[AnyTool | Callable[..., Any] | str] = (), sources: Iterable[ToolSource] = ()
    ) -> None:
        if isinstance(tools, Mapping):
            raise ConfigurationError("Tools must be given as a list, not as a dict.")
        if isinstance(tools, str) or not isinstance(tools, Iterable):
            raise ConfigurationError("Tools must be given as a list.")
        self._given: dict[str, AnyTool] = {}
        for given in tools:
            tool = _tool(given)
            if tool.name in self._given:
                raise ConfigurationError(f"There are two tools called {tool.name}.")
            if tool.name == READ_RESULT and not built_in_name(tool):
                raise ConfigurationError(f"{READ_RESULT} is a built-in tool: give a tool of your own another name.")
            self._given[tool.name] = tool
        self._sources = tuple(sources)
        self._snapshot = _snapshot_of(self._given, self._sources)

    @property
    def version(self) -> tuple[int, ...]:
        """A value that changes whenever the tools do."""
        return tuple(map(_VERSION, self._sources))

    def find(self, name: str, allowed: Allowed = None) -> AnyTool | None:
        """The tool that this name means, or None: a call in an older log may name a tool that no longer exists.

        A tool is found by its own name first, then by the name under which providers accept it. A built-in tool is also
        found by its other names, and by each of these behind the name of a server, as in `x:respond_to_user`, unless
        that is a server of the application.
        """
        current = self._current
        tools = current.tools
        if name in tools and (allowed is None or name in allowed):
            return tools[name]
        names = self._names(allowed)
        others = () if self.comes_from_source(name) else names_of(name)
        meant = (current.names.get(name, name), *others)
        return next((tools[each] for each in meant if each in names), None)

    def comes_from_source(self, name: str) -> bool:
        """Whether a tool of this name, if there is one, comes from a source. There may be one later."""
        return any(source.owns(name) for source in self._sources)

    def approver_at_source(self, name: str) -> Approver | None:
        """Who must approve each call of the tool of this name that a source may have later; None if nobody must."""
        return next((source.approver_of(name) for source in self._sources if source.owns(name)), None)

    def find_given(self, given: str | Callable[..., Any]) -> AnyTool | None:
        """The tool that an application means by a name, by the tool, or by the function that it was made of."""
        if isinstance(given, str):
            return self.find(given)
        function = given.function if isinstance(given, Tool) else given
        tools = self._current.tools.values()
        return next((tool for tool in tools if tool is given or tool.function == function), None)

    def allowed(
        self, chosen: Iterable[str] | None, of_profile: Iterable[str] | None = None, caller: Caller | None = None
    ) -> frozenset[str]:
        """The names of the tools that a conversation chose, that its profile allows and that this caller may call; None
        stands for all of them, and for any caller. A name that means no tool is left out.

        `files:*` chooses every tool of the server `files`. The tools of sources are allowed for every profile.
        """
        current = self._current
        names = frozenset(current.tools)
        if chosen is not None:
            names = names.intersection(self._expanded(chosen))
        if of_profile is not None:
            names = names.intersection(current.of_sources.union(self._expanded(of_profile)))
        return frozenset(name for name in names if self._fault_of(current.tools[name], caller) is None)

    def role_fault(self, name: str, caller: Caller | None) -> str | None:
        """Why this caller may not call the built-in tool that this name means, in a sentence; None if it may, and for
        a tool of the application. An engine need not have the tool: a model may know its name from elsewhere."""
        tool = self.find(name)
        if tool is not None:
            return self._fault_of(tool, caller)
        meant = () if caller is None or self.comes_from_source(name) else names_of(name)
        return caller.fault(meant[0]) if caller is not None and meant else None

    def find_for(self, name: str, allowed: Allowed, caller: Caller | None) -> tuple[AnyTool | None, str | None]:
        """The tool that `find` finds, if this caller may call it, and what `role_fault` returns. The tool by which a
        model reads results is found in any case."""
        current = self._current
        tool = current.tools.get(name)
        if tool is not None and name not in current.built_in and (allowed is None or name in allowed):
            return tool, None  # as most calls: a tool of the application, which every agent may call
        denied = self.role_fault(name, caller)
        found = None if denied else self.find(name, allowed)
        if found is None and denied is None and READ_RESULT in names_of(name) and not self.comes_from_source(name):
            return BUILT_IN[READ_RESULT], None
        return found, denied

    def find_in(self, context: Context, turn: int, name: str) -> tuple[AnyTool | None, str]:
        """The tool that a call in this turn of a conversation runs; or None, and why there is none, in a sentence."""
        chosen = context.tools_in(turn)
        allowed = None if chosen is None else self.allowed(chosen)
        tool, denied = self.find_for(name, allowed, context.caller)
        return (tool, "") if tool is not None else (None, denied or self.describe_unknown(name, allowed))

    def name_of(self, tool: AnyTool, allowed: Allowed = None) -> str:
        """The name under which this tool is offered, which may be another of its names; empty if it is not offered. A
        tool of the application that has the same name is another tool."""
        offered = (self._current.tools[name] for name in self._names(allowed))
        return next((one.name for one in offered if one.function is tool.function), "")

    def names_acting(self, act: ActKind, allowed: Allowed = None) -> tuple[str, ...]:
        """The names under which those of these tools are offered that declare this kind of act."""
        tools = self._current.tools
        return tuple(name for name in self._names(allowed) if act in tools[name].acts)

    def spoken_arguments(self, names: Iterable[str]) -> dict[str, str]:
        """Those of these tools whose words for the user stand in one argument, which it is, by the names that a model
        sees."""
        tools, renamed = self._current.tools, self._current.renamed
        return {seen_name(name): tools[name].spoken for name in names if tools[name].spoken and name not in renamed}

    def acts_of(self, allowed: Allowed = None) -> frozenset[ActKind]:
        """The kinds of act that these tools declare."""
        return frozenset(act for name in self._names(allowed) for act in self._current.tools[name].acts)

    def definitions(self, allowed: Allowed = None) -> tuple[dict[str, Any], ...]:
        """These tools as they are offered to a model, in the order in which they were given. Always the same objects:
        do not change them."""
        return tuple(self._current.definitions[name] for name in self._names(allowed))

    def resolve_calls(
        self,
        effect_id: int,
        calls: Sequence[ModelCall],
        policy: Policy = _POLICY,
        allowed: Allowed = None,
        caller: Caller | None = None,
        mark: str = "",
    ) -> tuple[ToolCall, ...]:
        """The calls of the response to the effect `effect_id`, with what is known of them now. Never raises.

        `policy` holds the rules under which the calls are made; a call of a tool that is not `allowed`, or that this
        `caller` may not call, has a `fault`. A call has the name under which its tool is offered, whichever of the
        tool's names the model used.

        A call's id is `call_<effect id>_<index>`, with the `mark` behind it by which one history of the conversation
        differs from another. So it is unique, whatever the provider sent, and an approval that was meant for a call of
        another history names none of this one.
        Arguments that are too long to be stored become `{}`, and `fault` says so.
        """
        end = f"_{mark}" if mark else ""
        resolved = [
            self._resolve(f"call_{effect_id}_{index}{end}", call, policy, allowed, caller)
            for index, call in enumerate(calls)
        ]
        return tuple(resolved)

    def describe_unknown(self, name: str, allowed: Allowed = None) -> str:
        """The sentence that says that there is no tool of this name, or that it is not allowed, and which tools are, by
        the names that a model reads. Of many tools it names those first whose names are like this one."""
        known = _listed([seen_name(each) for each in self._names(allowed)], name)
        own_name = self._current.names.get(name, name)
        given = shortened(own_name, _MAX_NAME) or "(no name)"
        if self.find(name) is None and self.comes_from_source(own_name):
            return f"{given} is not available now: its server is not connected, or no longer offers it."
        if self.find(name) is None:
            return shortened(f"There is no tool called {given}. {f'Known: {known}.' if known else _NO_TOOLS}")
        return shortened(f"{given} is not available here. {f'Available: {known}.' if known else _NO_TOOLS}")

    @property
    def _current(self) -> _Snapshot:
        if self._sources and self._snapshot.version != self.version:
            self._snapshot = _snapshot_of(self._given, self._sources, self._snapshot.names)
        return self._snapshot

    def _names(self, allowed: Allowed) -> Collection[str]:
        """The names of these tools, in the order in which they were given."""
        tools = self._current.tools
        return tools if allowed is None else [name for name in tools if name in allowed]

    def _expanded(self, chosen: Iterable[str]) -> Iterator[str]:
        """The names of the tools that these names mean."""
        for name in chosen:
            if name.endswith(f":{_EVERY}") and self.comes_from_source(name):
                yield from (each for each in self._current.of_sources if each.startswith(name.removesuffix(_EVERY)))
            elif (tool := self.find(name)) is not None:
                yield tool.name

    def _fault_of(self, tool: AnyTool, caller: Caller | None) -> str | None:
        built_in = None if caller is None else self._current.built_in.get(tool.name)
        return caller.fault(built_in) if caller is not None and built_in else None

    def _resolve(
        self, call_id: str, call: ModelCall, policy: Policy, allowed: Allowed, caller: Caller | None
    ) -> ToolCall:
        name = encodable(call.name)
        tool, denied = self.find_for(name, allowed, caller)
        unknown = denied or (self.describe_unknown(name, allowed) if tool is None else "")
        arguments, fault = self._check(tool, unknown, call.arguments, policy)
        provider_id = encodable(call.id) if len(call.id) <= LONGEST_ID else ""
        if tool is None:
            return ToolCall(call_id=call_id, name=name, raw_arguments=arguments, provider_id=provider_id, fault=fault)
        return ToolCall(
            call_id=call_id,
            name=tool.name,
            raw_arguments=arguments,
            provider_id=provider_id,
            fault=fault,
            approval=tool.needs_approval(arguments, policy),
            approval_by=tool.approval_by,
            max_result=tool.max_result,
            exclusive=tool.exclusive,
            crash=tool.crash,
            acts=tool.acts,
        )

    def _check(self, tool: AnyTool | None, unknown: str, arguments: str, policy: Policy) -> tuple[str, str | None]:
        """The arguments as they are stored, and what is wrong with the call: `unknown` if there is no tool for it. A
        call runs with what is stored of it; of one that cannot run what the model wrote is stored."""
        stored = "{}"
        try:
            stored = storable(arguments)
            if tool is None:
                return read_object(stored).text, unknown
            if (renamed := self._current.renamed.get(tool.name)) is not None:
                stored = renamed.restored(read_object(stored).text)
            return tool.arguments.under(policy).accepted(stored), None
        except InvalidArguments as invalid:
            return stored, unknown or invalid.sentence


def seen_name(name: str) -> str:
    """The name under which a model sees the tool of this name. `Pure.`"""
    return legal_name(name)


def _listed(names: Sequence[str], wanted: str) -> str:
    """As many of these names as a sentence has room for, those first that are like the `wanted` one."""
    from difflib import get_close_matches  # only this error needs it

    close = get_close_matches(wanted[:_MAX_NAME], names, n=_MAX_CLOSE)
    listed = [*close, *(name for name in names if name not in close)]
    ends = accumulate(len(name) + len(", ") for name in listed)
    count = sum(end <= _MAX_LISTED for end in ends)
    rest = len(listed) - count
    return ", ".join(listed[:count]) + (f" and {rest} more" if rest else "")


def _snapshot_of(
    given: Mapping[str, AnyTool], sources: Sequence[ToolSource], former: Mapping[str, str] = MappingProxyType({})
) -> _Snapshot:
    """The tools that there are now. A tool of a source that providers could not tell from another one is left out.

    The names under which providers accept `former` tools are kept, so that a call of one says what became of it.
    """
    version = tuple(source.version for source in sources)
    tools = dict(given)
    names = {legal_name(name): name for name in given}
    for tool in (tool for source in sources for tool in source.tools()):
        if (legal := legal_name(tool.name)) in names:
            _LOGGER.warning("%s is left out: providers could not tell it from %s", tool.name, names[legal])
            continue
        names[legal] = tool.name
        tools[tool.name] = tool
    definitions = {name: tool.definition() for name, tool in tools.items()}
    of_sources = frozenset(tools.keys() - given.keys())
    kept = former if len(former) < _MAX_FORMER else {}
    built_in = {name: known for name, tool in tools.items() if (known := built_in_name(tool))}
    renamed = {name: back for name, tool in tools.items() if (back := property_names_of(tool.parameters))}
    return _Snapshot(version, tools, renamed, of_sources, definitions, {**kept, **names}, built_in)


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
