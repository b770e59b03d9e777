"""The page about redaction: its programs run, and its links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.effects.redaction.rules import DETECTORS

from ..support.pages import Page, run_block

pytestmark = pytest.mark.timeout(240)  # programs in processes of their own, on a machine that may be busy

PAGE = Page("docs/redaction.md")


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each is a whole program that ends well; what it claims it asserts."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_its_links() -> None:
    """Every link of the page leads somewhere."""
    assert PAGE.broken_links() == []


def test_the_detectors_that_are_used_are_counted() -> None:
    """The page says how many detectors of detect-secrets are used."""
    assert f"detectors {len(DETECTORS)}" in " ".join(PAGE.text.split())
