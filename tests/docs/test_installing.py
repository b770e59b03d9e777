"""How turnwise and its extras are installed is said in one way, in the pages, the examples and the errors."""

from __future__ import annotations

import re
import tomllib

from ..support.cases import holds_for
from ..support.pages import ROOT
from ..test_packaging import python_files

NAMED = re.compile(r".{0,13}(?:turnwise|checkout)\[[\w,]+\].?")
"""A requirement with extras, and the text around it where the command should stand."""

TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(file for file in python_files() if file.relative_to(ROOT).parts[0] != "tests"),
]
MENTIONS = [(str(file.relative_to(ROOT)), found) for file in TEXTS for found in NAMED.findall(file.read_text("utf-8"))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@holds_for(("file", "mention"), MENTIONS)
def test_extras_are_installed_by_name(file: str, mention: str) -> None:
    """Wherever extras are to be installed, the command can be copied: it names turnwise in quotes, and extras that
    there are."""
    command = re.fullmatch(r'pip install "turnwise\[([\w,]+)\]"', mention)

    assert command is not None, f"{file}: {mention}"
    assert EXTRAS.keys() >= {*command[1].split(",")}


def test_all_kinds_of_texts_are_read() -> None:
    """Pages name extras, and so do examples and errors."""
    files = {file for file, _ in MENTIONS}

    assert files >= {"README.md", "docs/redaction.md", "examples/voice_loop.py", "effects/redaction/redaction.py"}


def test_the_readme_says_where_turnwise_comes_from() -> None:
    """The first command of its section is the one that needs no index of packages."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Installing\n")[1].split("\n## ")[0]
    commands = re.findall(r"^pip install (\S+)", section, re.MULTILINE)

    assert commands[0] == "path/to/this/checkout"
    assert all(command.startswith('"turnwise[') for command in commands[1:])
