"""The role of an agent among others, and which of the built-in tools it may call.

A *foreground* agent has a user; a *background* agent works for a foreground agent; a *sub-agent* was started by a turn
of another agent and answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from .policy import SubAgentRules

Role = Literal["foreground", "background", "sub_agent"]

DEFAULT_RULES = SubAgentRules()
"""The rules for sub-agents of a policy that says nothing of them."""


@dataclass(frozen=True)
class RoleTools:
    """The built-in tools, by all their names: those that agents of one role may call, and those that they may not.

    `title` is what such agents are called in a sentence.
    """

    title: str
    allowed: frozenset[str]
    denied: frozenset[str]


ROLE_TOOLS: Mapping[Role, RoleTools] = MappingProxyType({
    "foreground": RoleTools(
        "agents with a user",
        allowed=frozenset({
            "ask_user_question",
            "respond_to_user",
            "speak_to_user",
            "talk",
            "mark_work_complete",
            "recall_conversation",
            "send_agent_message",
            "spawn_agents",
            "transfer_to",
        }),
        denied=frozenset({"send_user_message"}),
    ),
    "background": RoleTools(
        "background agents",
        allowed=frozenset({
            "mark_work_complete",
            "recall_conversation",
            "send_user_message",
            "send_agent_message",
            "spawn_agents",
            "transfer_to",
        }),
        denied=frozenset({"ask_user_question", "respond_to_user", "speak_to_user", "talk"}),
    ),
    "sub_agent": RoleTools(
        "sub-agents",
        allowed=frozenset({"mark_work_complete", "recall_conversation", "send_agent_message", "spawn_agents"}),
        denied=frozenset({
            "ask_user_question",
            "respond_to_user",
            "speak_to_user",
            "talk",
            "send_user_message",
            "transfer_to",
        }),
    ),
})  # fmt: skip
"""Which built-in tools the agents of each role may call. `role_fault` adds what the rules for sub-agents say."""


def role_fault(tool: str, role: Role, depth: int = 0, rules: SubAgentRules = DEFAULT_RULES) -> str | None:
    """Return why an agent of this role may not call the built-in `tool`, in a sentence, or None if it may.

    `depth` counts the agents above this one: 0 where no turn of another agent started it, and at least 1 for a
    sub-agent. By the `rules`, agents beyond a depth start no others, and sub-agents may ask the user. `Pure.`
    """
    of_role = ROLE_TOOLS[role]
    above = max(depth, 1) if role == "sub_agent" else depth
    is_too_deep = tool == "spawn_agents" and above >= rules.depth
    may_ask = tool == "ask_user_question" and role == "sub_agent" and rules.questions == "ask_user"
    if is_too_deep or (tool in of_role.denied and not may_ask):
        return f"{tool} is not available to {of_role.title}"
    return None


@dataclass(frozen=True)
class Caller:
    """The agent that calls tools: its role, how many agents are above it, and the rules for sub-agents."""

    role: Role = "foreground"
    depth: int = 0
    rules: SubAgentRules = DEFAULT_RULES

    def fault(self, tool: str) -> str | None:
        """Return why this agent may not call the built-in `tool`, in a sentence, or None if it may. `Pure.`"""
        return role_fault(tool, self.role, self.depth, self.rules)
