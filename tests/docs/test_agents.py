"""The page about agents: its programs run, its table of limits is that of the code, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from turnwise import Policy
from turnwise.effects.model import rehearsal
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.states.roles import ROLE_TOOLS, Role
from turnwise.states.values.turn import MAX_INBOX

from ..support.pages import Page, table

pytestmark = pytest.mark.timeout(240)  # programs on a machine that may be busy

PAGE = Page("docs/agents.md")


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    monkeypatch.setattr(rehearsal, "DELAY", 0.0)
    monkeypatch.chdir(tmp_path)

    exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})


def test_the_tools_of_each_role_are_those_of_the_data() -> None:
    """D2: the table names each built-in tool once, and says which roles may call it."""
    rows = table(PAGE.section("Tools by role"), "tool")

    assert sorted(rows) == sorted(BUILT_IN)
    for column, role in enumerate(get_args(Role)):
        by_rules = {tool for tool, row in rows.items() if row[column].startswith("if ")}
        assert {tool for tool, row in rows.items() if row[column] == "no"} == ROLE_TOOLS[role].denied - by_rules
        assert by_rules == ({"ask_user_question", "spawn_agents"} if role == "sub_agent" else set())


def test_its_limits_are_those_of_the_code() -> None:
    """Each limit that a rule sets is the default of that rule."""
    policy = Policy()
    defaults: dict[str, Any] = {
        "SubAgentRules.depth": policy.sub_agents.depth,
        "SubAgentRules.number": policy.sub_agents.number,
        "SubAgentRules.requests": policy.sub_agents.requests,
        "Policy.sub_agent_deadline": (policy.sub_agent_deadline or 0) / 60,
        "Policy.cancel_deadline": policy.cancel_deadline,
    }
    rows = table(PAGE.text, "What")
    numbers = {rule.strip("`").partition("`")[0]: re.findall(r"^\d+", bound) for bound, rule in rows.values()}

    assert {rule: float(numbers[rule][0]) for rule in defaults} == defaults
    assert rows["messages that wait for one agent"][0].startswith(f"{MAX_INBOX};")


def test_its_links_lead_somewhere() -> None:
    """Every link names a file of the repository or a heading of a page."""
    assert PAGE.links()
    assert PAGE.broken_links() == []
