"""The commands that need no database."""

from __future__ import annotations

from pathlib import Path

from ....support.terminal import run


def test_the_diagram_is_the_table_in_mermaid(tmp_path: Path) -> None:
    """`turnwise diagram` prints it."""
    done = run("diagram", cwd=tmp_path)

    assert "\nflowchart LR\n" in done.stdout
    assert "\n    start(( )) -->|Opened| start_Idle([Idle])" in done.stdout


def test_the_help_names_each_command(tmp_path: Path) -> None:
    """The commands and options of the README."""
    done = run("--help", cwd=tmp_path)

    for command in (
        "chat",
        "demo",
        "list",
        "show",
        "replay",
        "resolve",
        "fork",
        "export",
        "import",
        "diagram",
        "doctor",
    ):
        assert f" {command} " in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
