"""The guides: what they list is what the code has. That their programs run is checked with those of all pages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from turnwise import Engine, Policy, ToolContext, Turn, presets
from turnwise.effects.model.port import LLM_FAILURES
from turnwise.effects.redaction.rules import DETECTORS
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.engine.turns import TurnStatus
from turnwise.engine.updates import Update
from turnwise.states.roles import ROLE_TOOLS, Role
from turnwise.states.values.turn import MAX_INBOX
from turnwise.states.values.value import TRANSIENT

from ..effects.model.litellm import test_matrix
from ..support.pages import Page, table
from ..support.servers.openai_server import OpenAiServer, says
from ..support.source.source_tree import ROOT

# --- The guides about host programs: their lists are those of the code.


MODELS, TURNS, TOOLS = (Page(f"docs/guides/{name}.md") for name in ("models", "turns", "tools"))
FAILURES, REPLIES = Page("docs/guides/model-failures.md"), Page("docs/guides/replies.md")
UPDATES = Page("docs/reference/updates.md")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
async def test_the_address_may_stand_in_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two variables that the page names sets the address, and the key is sent with it."""
    assert variable in MODELS.section("Models")
    async with OpenAiServer([says("Hello from here.")]) as server:
        monkeypatch.setenv(variable, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        async with Engine.open("sqlite://", model="openai/qwen3") as engine:
            turn = await (await engine.create()).send("Hello")

    assert turn.reply == "Hello from here."


@pytest.mark.timeout(240)
def test_its_updates_are_those_of_the_code() -> None:
    """The table of updates, which is generated from their classes, names all types."""
    assert list(table(UPDATES.text, "type")) == [kind.type for kind in get_args(Update)]


@pytest.mark.timeout(240)
def test_its_statuses_are_those_of_the_code() -> None:
    """The table of turns says what to do for each status."""
    named = [status for row in table(TURNS.text, "`turn.status`") for status in re.findall(r"\w+", row)]

    assert sorted(named) == sorted(get_args(TurnStatus))
    classes = " ".join(row[0] for row in table(TURNS.text, "`turn.status`").values())
    assert sorted(re.findall(r"\w+", classes)) == sorted(kind.__name__ for kind in get_args(Turn))


@pytest.mark.timeout(240)
def test_what_a_tool_may_know_is_listed() -> None:
    """The table of `ToolContext` has all its members."""
    named = [member.partition("(")[0] for member in table(TOOLS.text, "`ToolContext`")]

    assert named == [field.name for field in dataclasses.fields(ToolContext)]


@pytest.mark.timeout(240)
def test_its_kinds_of_failure_are_those_of_the_code() -> None:
    """The table has each kind in which a model request may fail, and those that the machine tries again say so."""
    rows = table(FAILURES.text, "`LlmFailure.kind`")

    assert tuple(rows) == LLM_FAILURES
    assert {kind for kind, (_, follows) in rows.items() if follows.startswith("retried")} == TRANSIENT


@pytest.mark.timeout(240)
def test_its_presets_bring_the_tools_that_their_rules_ask_for() -> None:
    """The page names built-in tools for each preset, and all of them speak or claim."""
    rows = table(REPLIES.section("What reaches the user"), "preset")
    tools = {tool for wanted, _ in rows.values() for tool in re.findall(r'`"(\w+)"`', wanted)}

    assert tools == {name for name, tool in BUILT_IN.items() if {"speech", "work_complete"} & {*tool.acts}} - {
        "speak_to_user"
    }


# --- The page about agents: its tables of tools and limits are those of the code.


AGENTS_PAGE = Page("docs/guides/agents.md")


@pytest.mark.timeout(240)
def test_the_tools_of_each_role_are_those_of_the_data() -> None:
    """D2: the table names each built-in tool once, and says which roles may call it."""
    rows = table(AGENTS_PAGE.section("Tools by role"), "tool")

    assert sorted(rows) == sorted(BUILT_IN)
    for column, role in enumerate(get_args(Role)):
        by_rules = {tool for tool, row in rows.items() if row[column].startswith("if ")}
        assert {tool for tool, row in rows.items() if row[column] == "no"} == ROLE_TOOLS[role].denied - by_rules
        assert by_rules == ({"ask_user_question", "spawn_agents"} if role == "sub_agent" else set())


@pytest.mark.timeout(240)
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
    rows = table(AGENTS_PAGE.text, "What")
    numbers = {rule.strip("`").partition("`")[0]: re.findall(r"^\d+", bound) for bound, rule in rows.values()}

    assert {rule: float(numbers[rule][0]) for rule in defaults} == defaults
    assert rows["messages that wait for one agent"][0].startswith(f"{MAX_INBOX};")


# --- docs/guides/providers.md says which provider takes what, and names the test of each cell.


PROVIDERS_PAGE = ROOT / "docs" / "guides" / "providers.md"
MODULE = "tests/effects/model/litellm/test_matrix.py"


def columns_shown() -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each test of the matrix, and the providers with which it runs."""
    for name, test in vars(test_matrix.TestMatrix).items():
        if name.startswith("test_"):
            (mark,) = test.pytestmark
            yield name, set(mark.args[1])


def providers_table() -> tuple[list[str], dict[str, list[str]]]:
    """Return the tests named by the heads of the columns, and the cells of each row by its provider."""
    first = next(part for part in PROVIDERS_PAGE.read_text(encoding="utf-8").split("\n\n") if part.startswith("| "))
    lines = first.splitlines()
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line)
    named = [re.sub(r"\W", "_", cell.strip()) for cell in head[1:]]
    return [f"test_{name}" for name in named], {row[0]: row[1:] for row in rows if row[0] in test_matrix.PROVIDERS}


def test_every_cell_says_what_its_test_shows() -> None:
    """A cell is "yes" where the test of its column runs with the provider of its row, and "–" where it does not."""
    columns, rows = providers_table()
    shown = dict(columns_shown())

    expected = {
        provider: ["yes" if provider in shown.get(column, ()) else "–" for column in columns]
        for provider in test_matrix.PROVIDERS
    }

    assert rows == expected
    assert shown.keys() <= set(columns)


def test_the_page_says_where_the_tests_are() -> None:
    """With the command that runs one cell."""
    assert f"pytest {MODULE}" in PROVIDERS_PAGE.read_text(encoding="utf-8")


# --- The page about the reply flow: its steps are those of the preset.


REPLY_FLOW_PAGE = Page("docs/guides/reply-flow.md")


@pytest.mark.timeout(240)
def test_its_steps_name_the_rules_of_the_preset() -> None:
    """The table of steps has each rule by which the preset adds a step to a turn."""
    named = {rule for row in table(REPLY_FLOW_PAGE.text, "step").values() for rule in re.findall(r"`(\w+)[`=]", row[0])}
    preset, default = presets.reply_flow(), Policy()
    changed = {rule for rule in Policy.model_fields if getattr(preset, rule) != getattr(default, rule)}

    assert named == changed - {"repeats", "limits", "empty", "plain_retry", "on_failure", "texts"}


# --- The page about redaction counts the detectors that are used.


REDACTION_PAGE = Page("docs/guides/redaction.md")


@pytest.mark.timeout(240)
def test_the_detectors_that_are_used_are_counted() -> None:
    """The page says how many detectors of detect-secrets are used."""
    assert f"detectors {len(DETECTORS)}" in " ".join(REDACTION_PAGE.text.split())
