"""The page about host programs: its programs run, and its lists are those of the code."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from turnwise import Engine, ToolContext, Turn
from turnwise.effects.model.port import LLM_FAILURES
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.engine.turns import TurnStatus
from turnwise.engine.updates import Update
from turnwise.states.values.value import TRANSIENT

from ..support.pages import Page, run_block, table
from ..support.servers.openai_server import OpenAiServer, says

pytestmark = pytest.mark.timeout(240)  # programs that load litellm, on a machine that may be busy

PAGE = Page("docs/host.md")
LOCAL = "http://127.0.0.1:8080/v1"
"""Where the page has its model."""

(ASKS_A_SERVER,) = (program for program in PAGE.programs if LOCAL in program and ".send(" in program)


@pytest.mark.slow
@pytest.mark.parametrize("program", [program for program in PAGE.programs if program is not ASKS_A_SERVER])
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims, also where it has run before."""
    for _ in range(2 if '.db"' in program else 1):
        ran = run_block(tmp_path, program)
        assert (ran.returncode, ran.stderr) == (0, "")


def imported(program: str) -> set[str]:
    """The modules at the top level that a program imports."""
    nodes = list(ast.walk(ast.parse(program)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in plain + named}


def test_it_says_what_its_programs_need() -> None:
    """Whatever they import comes with Python or with turnwise, except for what the table at the top names."""
    given = {*sys.stdlib_module_names, "turnwise", "transitions"}
    strangers = {name: program for program in PAGE.programs for name in imported(program) - given}
    needs = table(PAGE.text, "the program under")

    assert {*strangers} == {"opentelemetry"}
    assert strangers["opentelemetry"] in PAGE.section("Tracing")
    assert '`pip install "turnwise[otel]" opentelemetry-sdk`' in needs["[Tracing](#tracing)"][0]
    assert ASKS_A_SERVER in PAGE.section("Models")
    assert "[Models](#models)" in needs


@pytest.mark.slow
async def test_a_local_server_is_asked_as_it_says(tmp_path: Path) -> None:
    """The program for a server of one's own sends its request to that address."""
    async with OpenAiServer([says("Hello from here.")]) as server:
        ran = await asyncio.to_thread(run_block, tmp_path, ASKS_A_SERVER.replace(LOCAL, server.url))

    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "Hello from here.\n")


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
async def test_the_address_may_stand_in_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two variables that the page names sets the address, and the key is sent with it."""
    assert variable in PAGE.section("Models")
    async with OpenAiServer([says("Hello from here.")]) as server:
        monkeypatch.setenv(variable, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        async with Engine.open("sqlite://", model="openai/qwen3") as engine:
            turn = await (await engine.create()).send("Hello")

    assert turn.reply == "Hello from here."


def test_its_updates_are_those_of_the_code() -> None:
    """The table of updates, which is generated from their classes, names all types."""
    assert list(table(PAGE.text, "type")) == [kind.type for kind in get_args(Update)]


def test_its_statuses_are_those_of_the_code() -> None:
    """The table of turns says what to do for each status."""
    named = [status for row in table(PAGE.text, "`turn.status`") for status in re.findall(r"\w+", row)]

    assert sorted(named) == sorted(get_args(TurnStatus))
    classes = " ".join(row[0] for row in table(PAGE.text, "`turn.status`").values())
    assert sorted(re.findall(r"\w+", classes)) == sorted(kind.__name__ for kind in get_args(Turn))


def test_what_a_tool_may_know_is_listed() -> None:
    """The table of `ToolContext` has all its members."""
    named = [member.partition("(")[0] for member in table(PAGE.text, "`ToolContext`")]

    assert named == [field.name for field in dataclasses.fields(ToolContext)]


def test_its_kinds_of_failure_are_those_of_the_code() -> None:
    """The table has each kind in which a model request may fail, and those that the machine tries again say so."""
    rows = table(PAGE.text, "`LlmFailure.kind`")

    assert tuple(rows) == LLM_FAILURES
    assert {kind for kind, (_, follows) in rows.items() if follows.startswith("retried")} == TRANSIENT


def test_its_presets_bring_the_tools_that_their_rules_ask_for() -> None:
    """The page names built-in tools for each preset, and all of them speak or claim."""
    rows = table(PAGE.section("What reaches the user"), "preset")
    tools = {tool for wanted, _ in rows.values() for tool in re.findall(r'`"(\w+)"`', wanted)}

    assert tools == {name for name, tool in BUILT_IN.items() if {"speech", "work_complete"} & {*tool.acts}} - {
        "speak_to_user"
    }


def test_its_links_lead_somewhere() -> None:
    """Every link names a file of the repository or a heading of a page."""
    assert PAGE.links()
    assert PAGE.broken_links() == []


@pytest.mark.parametrize(
    "path", ["README.md", "docs/host.md", "docs/agents.md", "docs/redaction.md", "docs/reply_flow.md"]
)
def test_no_requirement_is_quoted_by_number(path: str) -> None:
    """Pages state the rules themselves; `docs/requirements.md` alone lists the numbers."""
    prose = [line for line in Page(path).text.splitlines() if not line.startswith("|")]

    assert [line for line in prose if re.search(r"\b(?:case|seed)s? \w?\d|\b[PSBJDH]\d{1,2}\b", line)] == []
