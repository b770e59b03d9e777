"""The commands and their options: what is imported, and what needs no database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnwise import Engine

from ....support.terminal import COMMAND, ENVIRONMENT, SECONDS, run


def test_the_diagram_is_the_table_in_mermaid(tmp_path: Path) -> None:
    """It needs no database."""
    done = run("diagram", cwd=tmp_path)

    assert "\nflowchart LR\n" in done.stdout
    assert "\n    start(( )) -->|Opened| start_Idle([Idle])" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--help"], {"litellm", "sqlalchemy", "questionary"}),
        (["list", "--db", "there.db"], {"litellm", "questionary"}),
    ],
)
def test_it_starts_fast(arguments: list[str], unused: set[str], tmp_path: Path) -> None:
    """Help needs neither a model nor a store nor menus, and a list needs no model."""
    with Engine.open_blocking(tmp_path / "there.db") as engine:
        engine.create()
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments]

    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS)

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert imported & {"typer", "litellm", "sqlalchemy", "questionary"} & unused == set()
