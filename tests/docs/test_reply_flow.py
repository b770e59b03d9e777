"""The page about the reply flow: its programs run, its steps are those of the preset, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnwise import Policy, presets

from ..support.pages import Page, run_block, table

pytestmark = pytest.mark.timeout(240)  # programs in processes of their own, on a machine that may be busy

PAGE = Page("docs/reply_flow.md")


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block is a complete program that succeeds and asserts what it claims."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_its_steps_name_the_rules_of_the_preset() -> None:
    """The table of steps has each rule by which the preset adds a step to a turn."""
    named = {rule for row in table(PAGE.text, "step").values() for rule in re.findall(r"`(\w+)[`=]", row[0])}
    preset, default = presets.reply_flow(), Policy()
    changed = {rule for rule in Policy.model_fields if getattr(preset, rule) != getattr(default, rule)}

    assert named == changed - {"repeats", "limits", "empty", "plain_retry", "on_failure", "texts"}


def test_its_links_lead_somewhere() -> None:
    """Every link names a file of the repository or a heading of a page."""
    assert PAGE.links()
    assert PAGE.broken_links() == []
