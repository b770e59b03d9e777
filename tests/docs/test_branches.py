"""The page about branches: its program runs, and it names every refusal."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from turnwise.states import RefusalCode

from ..support.pages import Page, run_block

PAGE = Page("docs/branches.md")


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


CODES = (
    "unknown_message",
    "unknown_turn",
    "unknown_branch",
    "hidden",
    "nothing_to_regenerate",
    "moved_on",
    "no_branches",
)


def test_it_names_what_only_such_requests_are_refused_with() -> None:
    """By the codes that there are."""
    assert set(CODES) <= set(get_args(RefusalCode))
    assert [code for code in CODES if f"`{code}`" not in PAGE.text] == []
