"""The built-in tools, by name.

To the machine they are tools like those of an application: whatever they do, they do by the act that they return.

They are imported when the first of them is asked for: to describe their arguments takes a tenth of the time in which
`Engine` is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from typing_extensions import override

from .tool import AnyTool

_MODULE = f"{__package__}.builtin"

_NAMES = (
    "ask_user_question",
    "respond_to_user",
    "speak_to_user",
    "mark_work_complete",
    "talk",
    "send_user_message",
    "send_agent_message",
    "spawn_agents",
    "recall_conversation",
    "transfer_to",
    "read_result",
)


class Catalogue(Mapping[str, AnyTool]):
    """The built-in tools, imported when one of them is asked for."""

    @override
    def __getitem__(self, name: str) -> AnyTool:
        if name not in _NAMES:
            raise KeyError(name)
        tool: AnyTool = getattr(import_module(_MODULE), name)
        return tool

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    @override
    def __len__(self) -> int:
        return len(_NAMES)

    def named(self, function: Any) -> Iterator[str]:
        """Yield the names under which this function is a built-in tool. A tool that exists has been imported."""
        if _MODULE in sys.modules:
            yield from (name for name in _NAMES if self[name].function is function)


BUILT_IN = Catalogue()
"""An application chooses the tools that it wants by these names."""


RECALL_CONVERSATION = "recall_conversation"
"""The tool by which a model searches older conversations. In a list of what is allowed its name stands for that search,
also for the one at the beginning of a turn."""


READ_RESULT = "read_result"
"""The tool by which a model reads what a request leaves out of a result. No application has to choose it: it is offered
where something is left out, and may be called in any case."""


def bare_name(name: str) -> str:
    """The name without the server in front of it: `x:respond_to_user` is `respond_to_user`. `Pure.`"""
    return name.rpartition(":")[2]


def names_of(name: str) -> tuple[str, ...]:
    """All names of the built-in tool that `name` means, beginning with the one in `name`; empty if there is no such
    tool. `Pure.`"""
    meant = bare_name(name)
    if meant not in _NAMES:
        return ()
    return (meant, *(other for other in BUILT_IN.named(BUILT_IN[meant].function) if other != meant))


def built_in_name(tool: AnyTool) -> str:
    """The name of the built-in tool that this is, under whatever name an application offers it; empty for a tool of the
    application, also for one that has the name of a built-in tool. `Pure.`"""
    names = list(BUILT_IN.named(tool.function))
    return tool.name if tool.name in names else next(iter(names), "")
