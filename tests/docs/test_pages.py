"""The pages of documentation: their links lead somewhere, and the programs of those run that need nothing around them.

What else a page claims is checked where its subject is. The programs of the other pages need a server or files.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from turnwise import Policy
from turnwise.states import RefusalCode
from turnwise.states.values.output import MAX_SCHEMA

from ..support.pages import ROOT, Page, run_block

BRANCHES, TYPED_ANSWERS = Page("docs/branches.md"), Page("docs/typed-answers.md")

PAGES = (
    BRANCHES,
    *(Page(f"docs/{name}.md") for name in ("files", "models", "redaction", "reply_flow", "stopping")),
    TYPED_ANSWERS,
)
"""The pages whose programs are complete."""

PROGRAMS = [
    pytest.param(program, id=f"{page.path.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(page.programs, start=1)
]


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_their_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_each_of_them_has_programs() -> None:
    """So none of them is left out."""
    assert [page.path.name for page in PAGES if not page.programs] == []


@pytest.mark.parametrize("path", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_lead_somewhere(path: str) -> None:
    """Every link within the repository names a file or a folder of it, or a heading of a page."""
    assert Page(path).broken_links() == []


def test_links_are_found() -> None:
    """So a page of which none is broken has none that was overlooked."""
    linked = ("README.md", *(f"docs/{name}.md" for name in ("agents", "extending", "host", "reply_flow", "testing")))

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
