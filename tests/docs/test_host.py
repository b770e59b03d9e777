"""The page about host programs tells the truth: its programs run, and what it lists is what there is."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from turnwise import Engine, ToolContext, Update, presets
from turnwise.effects.tools.builtin.catalogue import BUILT_IN
from turnwise.engine.turn import Status
from turnwise.engine.updates import UpdateType
from turnwise.hosts.diagrams.mermaid import PRESETS, RULES, main
from turnwise.hosts.diagrams.rules_page import rules, sets_of_rules
from turnwise.states.policy import policy as turnwise_policy
from turnwise.states.policy.policy import Policy
from turnwise.states.policy.rules import Rules
from turnwise.states.policy.texts import Texts
from turnwise.states.values.value import Value

from ..support.openai_server import OpenAiServer, says
from ..support.pages import Page, run_block

pytestmark = pytest.mark.timeout(240)  # programs that load litellm, on a machine that may be busy

PAGE = Page("docs/host.md")
LOCAL = "http://127.0.0.1:8080/v1"
"""Where the page has its model."""

(ASKS_A_SERVER,) = (program for program in PAGE.programs if LOCAL in program)

KINDS = {
    "" if kind is Policy else f"{name}.": kind
    for name, kind in vars(turnwise_policy).items()
    if isinstance(kind, type) and issubclass(kind, Rules) and kind not in (Rules, Texts)
}
"""The rules, by what stands before the names of their fields."""


def written(value: object) -> str:
    """How a default stands in the table."""
    if isinstance(value, tuple) and value:
        return '`(ModelSpec(name="default"),)`'
    if isinstance(value, Value):
        return f"`{type(value).__name__}()`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def table(text: str, title: str) -> dict[str, list[str]]:
    """The rows of the table with this first column, by their first cell."""
    below = text.split(f"| {title} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("| ").split(" | ")] for row in below)
    return {first.strip("` "): rest for first, *rest in cells}


@pytest.mark.parametrize("program", [program for program in PAGE.programs if program is not ASKS_A_SERVER])
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a whole program that ends well; what it claims it asserts."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


async def test_a_local_server_is_asked_as_it_says(tmp_path: Path) -> None:
    """The program for a server of one's own asks one, at that address."""
    async with OpenAiServer([says("Hello from here.")]) as server:
        ran = await asyncio.to_thread(run_block, tmp_path, ASKS_A_SERVER.replace(LOCAL, server.url))

    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "Hello from here.\n")


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
async def test_the_address_may_stand_in_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two variables that the page names leads to the server, with the key beside it."""
    assert variable in PAGE.section("Models")
    async with OpenAiServer([says("Hello from here.")]) as server:
        monkeypatch.setenv(variable, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        async with Engine.open("sqlite://", model="openai/qwen3") as engine:
            turn = await (await engine.create()).send("Hello")

    assert turn.reply == "Hello from here."


def test_its_updates_are_those_of_the_code() -> None:
    """The table of updates is that in the docstring of `Update`, and both name all types."""
    assert table(PAGE.text, "type") == table(inspect.getdoc(Update) or "", "type")
    assert list(table(PAGE.text, "type")) == list(get_args(UpdateType))


def test_its_statuses_are_those_of_the_code() -> None:
    """The table of turns says of each status what to do."""
    named = [status for row in table(PAGE.text, "`turn.status`") for status in re.findall(r"\w+", row)]

    assert sorted(named) == sorted(get_args(Status))


def test_what_a_tool_may_know_is_listed() -> None:
    """The table of `ToolContext` has all its members."""
    named = [member.partition("(")[0] for member in table(PAGE.text, "`ToolContext`")]

    assert named == [field.name for field in dataclasses.fields(ToolContext)]


def test_its_presets_bring_the_tools_that_their_rules_ask_for() -> None:
    """Beside each preset stand built-in tools, and they are all tools that speak or claim."""
    rows = table(PAGE.section("What reaches the user"), "preset")
    tools = {tool for wanted, _ in rows.values() for tool in re.findall(r'`"(\w+)"`', wanted)}

    assert tools == {name for name, tool in BUILT_IN.items() if {"speech", "work_complete"} & {*tool.acts}} - {
        "speak_to_user"
    }


def test_its_links_lead_somewhere() -> None:
    """Every link names a file of the repository or a heading of a page."""
    assert PAGE.links()
    assert PAGE.broken_links() == []


@pytest.mark.parametrize("path", ["README.md", "docs/host.md"])
def test_no_requirement_is_quoted_by_number(path: str) -> None:
    """Pages state the rules themselves; `docs/requirements.md` alone lists the numbers."""
    prose = [line for line in Page(path).text.splitlines() if not line.startswith("|")]

    assert [line for line in prose if re.search(r"\b(?:case|seed)s? \w?\d|\b[PSBJDH]\d{1,2}\b", line)] == []


class TestTheTablesOfRules:
    """`hosts/diagrams/rules_page.py`, which makes two tables of the page."""

    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """What is made in `docs/host.md` is what the code gives."""
        assert main(["--check", str(PAGE.path)]) == 0, "run `make docs`"

    def test_every_rule_says_what_it_means(self) -> None:
        """Each field of the rules has a row, and in it a sentence and its default."""
        rows = table(PAGE.text, "rule")

        for prefix, kind in KINDS.items():
            for name, field in kind.model_fields.items():
                default, _, meant = rows.pop(f"{prefix}{name}")
                assert meant.endswith((".", "…")), name
                assert field.is_required() or default == written(field.default)
        assert rows == {}

    def test_a_preset_is_made_of_the_rules_that_stand_beside_it(self) -> None:
        """Whoever writes down what the table says has the same rules as the preset."""
        names = {**vars(turnwise_policy), "Texts": Texts}
        for name, (_, changed) in table(PAGE.section("Rules"), "preset").items():
            rules = ", ".join(re.findall(r"`([^`]+)`", changed))

            assert eval(f"Policy({rules})", names) == eval(f"presets.{name}", {"presets": presets})

    def test_what_stands_around_a_table_stays(self, tmp_path: Path) -> None:
        """Writing a page again changes what is made, and nothing else, also where the table ends the page."""
        page = tmp_path / "page.md"
        page.write_text(f"Before.\n\n{PRESETS}\n| old |\n\nBetween.\n\n{RULES}\n| old |\n", encoding="utf-8")

        stale, *fresh = main(["--check", str(page)]), main(["--write", str(page)]), main(["--check", str(page)])

        assert (stale, fresh) == (1, [0, 0])
        expected = f"Before.\n\n{PRESETS}\n{sets_of_rules()}\nBetween.\n\n{RULES}\n{rules()}"
        assert page.read_text(encoding="utf-8") == expected
