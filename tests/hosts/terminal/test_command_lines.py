"""Command lines for users to copy: a shell reads them as they were meant."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.hosts.terminal.configuration import command_line

from ...support.terminal import run

pytestmark = pytest.mark.slow


def read_by_a_shell(line: str, cwd: Path) -> list[str]:
    """Return the arguments that a shell passes when it runs this line."""
    function = 'turnwise() { printf "%s\\0" "$@"; }\n'
    done = subprocess.run(["bash", "-c", function + line], cwd=cwd, capture_output=True, text=True, check=True)
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
def test_any_name_of_a_database_is_quoted(name: str, tmp_path: Path) -> None:
    """A name may contain invisible and control characters: the command line is still one printable line."""
    line = command_line("chat", "--db", name)

    assert line.isprintable()
    assert read_by_a_shell(line, tmp_path) == ["chat", "--db", name]


@pytest.mark.parametrize("folder", ["my tools", "."])
def test_a_command_that_is_not_in_path_is_given_by_its_path(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the path contains a space, or if the command is in the working directory."""
    program = tmp_path / folder / "turnwise"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(Path(folder) / "turnwise")])

    done = subprocess.run(["bash", "-c", command_line("list")], capture_output=True, text=True, check=True)

    assert done.stdout == "list\0"


def test_the_resume_hint_works_without_this_environment(tmp_path: Path) -> None:
    """It has the options that came from the environment or the command line, but not those of turnwise.toml."""
    (tmp_path / "turnwise.toml").write_text('tools = ["turnwise.hosts.terminal.demo:find_table"]\n', encoding="utf-8")

    done = run("chat", cwd=tmp_path, TURNWISE_DB="other.db")
    hint = re.search(r"turnwise (chat .*)", done.stdout)

    assert hint is not None
    assert hint[1].split()[2:] == ["--db", "other.db"]
    assert run(*hint[1].split(), cwd=tmp_path).returncode == 0


def test_the_resume_hint_keeps_the_display_options(tmp_path: Path) -> None:
    """A chat with --thoughts is resumed with --thoughts."""
    done = run("chat", "--thoughts", cwd=tmp_path)

    assert re.search(r"turnwise chat [0-9a-f-]{36} --thoughts$", done.stdout, re.MULTILINE)
