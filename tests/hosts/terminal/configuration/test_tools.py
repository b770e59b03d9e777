"""Tools by their names."""

from __future__ import annotations

from pathlib import Path

from ....support.terminal import DEMO_TOOLS, LOOK, REQUEST, TALK, below_the_way_back, run


def test_tools_that_are_not_there_any_more_are_named(tmp_path: Path) -> None:
    """A log keeps no tools: a line says which of those that were used are missing; no line where all are there."""
    run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "1"])

    without = run("chat", "--resume", cwd=tmp_path)
    beside = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path)

    assert "used are missing now: find_table. Name them with --tools." in without.stdout
    assert "missing" not in beside.stdout


def test_a_tool_of_ones_own_may_take_its_place(tmp_path: Path) -> None:
    """S16: what the preset brings along makes room for a function of that name."""
    (tmp_path / "mine.py").write_text(TALK)

    done = run("chat", "--preset", "talk", "--tools", "mine:talk", cwd=tmp_path, lines=["hello"])

    assert below_the_way_back(done).startswith("Mine: ")


def test_tools_that_are_named_come_beside_them(tmp_path: Path) -> None:
    """One that is there already, by whichever name, is not there twice (S16)."""
    (tmp_path / "mine.py").write_text(LOOK)
    run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello"])
    options = ("--tools", "mine:look,speak_to_user", "--thoughts")

    done = run("chat", "--resume", *options, cwd=tmp_path, lines=["Look in Rome", "/events"])

    assert '✓ look(place="Rome")' in done.stdout
    assert 'speak_to_user({"text": ' in done.stdout
    assert "missing" not in done.stdout
