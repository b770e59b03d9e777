"""Which tools a chat has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.terminal import DEMO_TOOLS, LOOK_TOOL, OWN_TALK_TOOL, REQUEST, output_after_hint, run

pytestmark = pytest.mark.slow


def test_missing_tools_are_named(tmp_path: Path) -> None:
    """Tools are not stored: on resuming, a line names those that the conversation used and that are missing."""
    run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "1"])

    without = run("chat", "--resume", cwd=tmp_path)
    beside = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path)

    assert "used are missing now: find_table. Name them with --tools." in without.stdout
    assert "missing" not in beside.stdout


def test_a_function_may_replace_a_required_tool(tmp_path: Path) -> None:
    """S16: the built-in tool that a preset requires is left out if a function has its name."""
    (tmp_path / "mine.py").write_text(OWN_TALK_TOOL)

    done = run("chat", "--preset", "talk", "--tools", "mine:talk", cwd=tmp_path, lines=["hello"])

    assert output_after_hint(done).startswith("Mine: ")


def test_required_tools_are_added_to_those_that_are_named(tmp_path: Path) -> None:
    """S16: a required tool that is named already, also by its alias, is not added again."""
    (tmp_path / "mine.py").write_text(LOOK_TOOL)
    run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello"])
    options = ("--tools", "mine:look,speak_to_user", "--thoughts")

    done = run("chat", "--resume", *options, cwd=tmp_path, lines=["Look in Rome", "/events"])

    assert '✓ look(place="Rome")' in done.stdout
    assert 'speak_to_user({"text": ' in done.stdout
    assert "missing" not in done.stdout
