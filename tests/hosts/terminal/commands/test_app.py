"""What the commands import, and the one that needs no database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnwise import Engine

from ....support.terminal import COMMAND, ENVIRONMENT, TIMEOUT, run


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
    """The help imports neither a model library nor the store nor menus, and a list no model library."""
    with Engine.open_blocking(tmp_path / "there.db") as engine:
        engine.create()
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments]

    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT)

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert imported & {"typer", "litellm", "sqlalchemy", "questionary"} & unused == set()
