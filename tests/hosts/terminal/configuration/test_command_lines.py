"""Commands that are printed to be copied: a shell reads them as they were meant."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.hosts.terminal.configuration.command_lines import command_line

from ....support.terminal import run


def read_by_a_shell(line: str, cwd: Path) -> list[str]:
    """The arguments with which a shell calls what stands in this line."""
    shown = 'turnwise() { printf "%s\\0" "$@"; }\n'
    done = subprocess.run(["bash", "-c", shown + line], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "name",
    [
        "my dinner.db",
        "it's.db",
        '"$HOME".db',
        "ü ☃.db",
        "-x.db",
        "a\tb.db",
        "a  b.db",
        "a\nb'\\.db",
        "\x1b[31m7.db",
        "a\u202eb.db",
    ],
)
def test_whatever_a_database_is_called_the_way_back_finds_it(name: str, tmp_path: Path) -> None:
    """A name may hold what a terminal does not show, or would obey: the command is one line all the same."""
    line = command_line("chat", "--db", name)

    assert line.isprintable()
    assert read_by_a_shell(line, tmp_path) == ["chat", "--db", name]


@pytest.mark.parametrize("place", ["my tools", "."])
def test_a_command_that_the_shell_does_not_find_is_named_by_its_path(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the path has a blank, or where the command lies in the very directory."""
    program = tmp_path / place / "turnwise"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(Path(place) / "turnwise")])

    done = subprocess.run(["bash", "-c", command_line("list")], capture_output=True, text=True, check=True)

    assert done.stdout == "list\0"


def test_the_way_back_works_without_this_environment(tmp_path: Path) -> None:
    """It names what the environment or the command line said, and not what the directory says by itself."""
    (tmp_path / "turnwise.toml").write_text('tools = ["turnwise.hosts.terminal.demo:find_table"]\n', encoding="utf-8")

    done = run("chat", cwd=tmp_path, TURNWISE_DB="other.db")
    back = re.search(r"turnwise (chat .*)", done.stdout)

    assert back is not None
    assert back[1].split()[2:] == ["--db", "other.db"]
    assert run(*back[1].split(), cwd=tmp_path).returncode == 0


def test_the_way_back_keeps_what_is_seen_and_heard(tmp_path: Path) -> None:
    """Thoughts that were asked for are shown to who comes back, too."""
    done = run("chat", "--thoughts", cwd=tmp_path)

    assert re.search(r"turnwise chat [0-9a-f-]{36} --thoughts$", done.stdout, re.MULTILINE)
