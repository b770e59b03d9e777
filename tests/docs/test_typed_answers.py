"""The page about typed answers: its programs run, and what it says of the rules is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Policy
from turnwise.states.values.output import MAX_SCHEMA

from ..support.pages import Page, run_block

PAGE = Page("docs/typed-answers.md")


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_its_numbers_are_those_of_the_rules() -> None:
    """How often an answer is sent back, and how long a schema may be."""
    assert f"times ({Policy().output_retries}) in a turn" in PAGE.text
    assert f"{MAX_SCHEMA:,} characters" in PAGE.text
