"""The built-in tools, by name.

To the machine they are tools like those of an application: whatever they do, they do by the act that they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..tool import AnyTool
from .mailing import send_agent_message, send_user_message
from .questions import ask_user_question
from .recalling import recall_conversation
from .spawning import spawn_agents
from .speaking import mark_work_complete, respond_to_user, speak_to_user, talk
from .transferring import transfer_to

BUILT_IN: Mapping[str, AnyTool] = MappingProxyType({
    tool.name: tool
    for tool in (
        ask_user_question,
        respond_to_user,
        speak_to_user,
        mark_work_complete,
        talk,
        send_user_message,
        send_agent_message,
        spawn_agents,
        recall_conversation,
        transfer_to,
    )
})  # fmt: skip
"""An application chooses the tools that it wants by these names."""


def bare_name(name: str) -> str:
    """The name without the server in front of it: `x:respond_to_user` is `respond_to_user`. `Pure.`"""
    return name.rpartition(":")[2]


def names_of(name: str) -> tuple[str, ...]:
    """All names of the built-in tool that `name` means, beginning with the one in `name`; empty if there is no such
    tool. `Pure.`"""
    meant = BUILT_IN.get(bare_name(name))
    if meant is None:
        return ()
    others = (tool.name for tool in BUILT_IN.values() if tool.function is meant.function and tool is not meant)
    return (meant.name, *others)


def built_in_name(tool: AnyTool) -> str:
    """The name of the built-in tool that this is, under whatever name an application offers it; empty for a tool of the
    application, also for one that has the name of a built-in tool. `Pure.`"""
    names = [name for name, one in BUILT_IN.items() if one.function is tool.function]
    return tool.name if tool.name in names else next(iter(names), "")
