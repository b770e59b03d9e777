"""The role of an agent among others, and which of the built-in tools it may call.

A *foreground* agent has a user; a *background* agent works for a foreground agent; a *sub-agent* was started by a turn
of another agent and answers it.
"""

from __future__ import annotations

from typing import Literal

Role = Literal["foreground", "background", "sub_agent"]

_DENIED: dict[Role, frozenset[str]] = {
    "foreground": frozenset({"send_user_message"}),
    "background": frozenset({"ask_user_question", "respond_to_user", "talk"}),
    "sub_agent": frozenset({"ask_user_question", "respond_to_user", "talk", "send_user_message"}),
}

_NAMES: dict[Role, str] = {
    "foreground": "agents with a user",
    "background": "background agents",
    "sub_agent": "sub-agents",
}

MAX_DEPTH = 1
"""How deep sub-agents may be nested: a sub-agent may not start sub-agents of its own."""


def role_fault(tool: str, role: Role, depth: int = 0) -> str | None:
    """Return why an agent of this role may not call the built-in `tool`, in a sentence, or None if it may.

    `depth` counts the turns of other agents above this one: 0 where nobody started it, and at least 1 above a
    sub-agent. `Pure.`
    """
    above = max(depth, 1) if role == "sub_agent" else depth
    too_deep = tool == "spawn_agents" and above >= MAX_DEPTH
    if tool in _DENIED[role] or too_deep:
        return f"{tool} is not available to {_NAMES[role]}"
    return None
