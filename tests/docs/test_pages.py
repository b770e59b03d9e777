"""The pages of the site: their links lead somewhere, and their programs run.

What else a page claims is checked where its subject is.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from turnwise import Policy
from turnwise.hosts.diagrams.machine_map import machine_map
from turnwise.states import RefusalCode
from turnwise.states.values.output import MAX_SCHEMA

from ..support.cases import holds_for
from ..support.pages import ROOT, Page, paths_of_pages, run_block
from .test_walkthroughs import WALKED

PATHS = paths_of_pages()
BRANCHES, TYPED_ANSWERS = Page("docs/guides/branches.md"), Page("docs/guides/typed-answers.md")

TESTED_ALONE = {
    "docs/development/extending.md": "needs a turnwise that is changed as the page says: see test_extending.py",
    "docs/guides/doors.md": "clients of a server: see test_http.py",
    "docs/guides/http.md": "a server and its client: see test_http.py",
    **{f"docs/guides/{name}.md": "followed step by step: see test_walkthroughs.py" for name in WALKED},
    "docs/guides/testing.md": "files of one project, with a fault that is found: see test_testing.py",
    "docs/tutorial.md": "followed step by step: see test_tutorial.py",
}
"""The pages whose programs do not run by themselves, each with the reason."""

PROGRAMS = [
    pytest.param(program, id=f"{Path(path).stem}-{number}")
    for path in PATHS
    if path not in TESTED_ALONE
    for number, program in enumerate(Page(path).blocks, start=1)
]


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_their_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims, also where it has run before."""
    for _ in range(2 if '.db"' in program else 1):
        ran = run_block(tmp_path, program)

        assert (ran.returncode, ran.stderr) == (0, "")


def test_the_programs_of_every_other_page_stand_alone() -> None:
    """A block with the name of a file belongs to a page that has tests of its own."""
    assert [path for path in PATHS if Page(path).files and path not in TESTED_ALONE] == []


def imported(program: str) -> set[str]:
    """The modules at the top level that a program imports."""
    nodes = list(ast.walk(ast.parse(program)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in plain + named}


COMES_WITH_TURNWISE = {*sys.stdlib_module_names, "turnwise", "httpx", "pydantic", "transitions"}

COMMANDS = {
    "fastapi": 'pip install "turnwise[http]"',
    "mcp": 'pip install "turnwise[mcp]"',
    "opentelemetry": 'pip install "turnwise[otel]" opentelemetry-sdk',
    "stdnum": 'pip install "turnwise[redact]"',
}
"""What installs the other modules that programs import. The page has to say so."""


@holds_for("path", [path for path in PATHS if path not in TESTED_ALONE])
def test_they_say_what_their_programs_need(path: str) -> None:
    """Whatever a program imports comes with Python or with turnwise, or the page names the command that installs it."""
    page = Page(path)
    needed = {name for program in page.blocks for name in imported(program)} - COMES_WITH_TURNWISE

    assert [name for name in needed if COMMANDS[name] not in page.text] == []


@holds_for("path", ["README.md", *(path for path in PATHS if path != "docs/reference/requirements.md")])
def test_no_requirement_is_quoted_by_number(path: str) -> None:
    """Pages state the rules themselves; `docs/reference/requirements.md` alone lists the numbers."""
    prose = [line for line in Page(path).text.splitlines() if not line.startswith("|")]

    assert [line for line in prose if re.search(r"\b(?:case|seed)s? \w?\d|\b[PSBJDH]\d{1,2}\b", line)] == []


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *PATHS])
def test_links_lead_somewhere(path: str) -> None:
    """Every link within the repository names a file or a folder of it, or a heading of a page."""
    assert Page(path).broken_links() == []


def test_links_are_found() -> None:
    """So a page of which none is broken has none that was overlooked."""
    linked = ("README.md", *(f"docs/guides/{name}.md" for name in ("agents", "index", "reply-flow", "testing")))

    assert [path for path in linked if not Page(path).links()] == []


CODES = (
    "unknown_message",
    "unknown_turn",
    "unknown_branch",
    "hidden",
    "nothing_to_regenerate",
    "moved_on",
    "no_branches",
)


def test_the_page_about_branches_names_what_only_such_requests_are_refused_with() -> None:
    """By the codes that there are."""
    assert set(CODES) <= set(get_args(RefusalCode))
    assert [code for code in CODES if f"`{code}`" not in BRANCHES.text] == []


def test_the_numbers_of_the_page_about_typed_answers_are_those_of_the_rules() -> None:
    """How often an answer is sent back, and how long a schema may be."""
    assert f"times ({Policy().output_retries}) in a turn" in TYPED_ANSWERS.text
    assert f"{MAX_SCHEMA:,} characters" in TYPED_ANSWERS.text


def test_the_picture_of_the_machine_has_every_state() -> None:
    """Under the name of its class in words, as the page of `turnwise serve` has it."""
    picture = (ROOT / "docs" / "images" / "machine.svg").read_text(encoding="utf-8")
    words = " ".join(re.findall(r">([^<>]+)</text>", picture))

    assert [state.title for state in machine_map().states if state.title not in words] == []
