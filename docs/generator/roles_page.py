"""Writes the table of built-in tools by role in docs/agents.md."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.states.policy.policy import SubAgentRules
from turnwise.states.policy.roles import ROLE_TOOLS, Role, role_fault

MOST_ALLOWED = SubAgentRules(depth=2, questions="ask_user")
"""Rules by which a sub-agent may do whatever the rules for sub-agents can allow."""


def role_tools() -> str:
    """Return the table of all built-in tools: which role may call each of them."""
    roles = tuple(ROLE_TOOLS)
    tools = sorted({tool for of_role in ROLE_TOOLS.values() for tool in (*of_role.allowed, *of_role.denied)})
    rows = [f"| tool | {' | '.join(role.replace('_', '-') for role in roles)} |", f"| --- |{' --- |' * len(roles)}"]
    return "\n".join([*rows, *(f"| `{tool}` | {' | '.join(_cells(tool, roles))} |" for tool in tools)]) + "\n"


def _cells(tool: str, roles: tuple[Role, ...]) -> Iterator[str]:
    for role in roles:
        if role_fault(tool, role) is None:
            yield "yes"
        else:
            yield "if `Policy.sub_agents` allows it" if role_fault(tool, role, 1, MOST_ALLOWED) is None else "no"
