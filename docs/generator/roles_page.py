"""Writes the table of built-in tools by role in docs/guides/agents.md."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.states.policy import SubAgentRules
from turnwise.states.roles import ROLE_TOOLS, Caller, Role

RULES = {
    "if `SubAgentRules.depth` is 2 or more": SubAgentRules(depth=2),
    'if `SubAgentRules.questions` is `"ask_user"`': SubAgentRules(questions="ask_user"),
}
"""Rules for sub-agents that allow more than the default ones, each with its words."""


def role_tools() -> str:
    """Return the table of all built-in tools: which role may call each of them."""
    roles = tuple(ROLE_TOOLS)
    tools = sorted({tool for of_role in ROLE_TOOLS.values() for tool in (*of_role.allowed, *of_role.denied)})
    rows = [f"| tool | {' | '.join(role.replace('_', '-') for role in roles)} |", f"| --- |{' --- |' * len(roles)}"]
    return "\n".join([*rows, *(f"| `{tool}` | {' | '.join(_cells(tool, roles))} |" for tool in tools)]) + "\n"


def _cells(tool: str, roles: tuple[Role, ...]) -> Iterator[str]:
    for role in roles:
        allowing = (words for words, rules in RULES.items() if Caller(role, 1, rules).fault(tool) is None)
        yield "yes" if Caller(role).fault(tool) is None else next(allowing, "no")
