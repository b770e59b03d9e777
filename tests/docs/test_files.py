"""The page about files: its programs run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.pages import Page, run_block

PAGE = Page("docs/files.md")


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")
