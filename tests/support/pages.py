"""Reads pages of documentation, so that tests can run their programs and follow their links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from .forks.starting import python

ROOT = Path(__file__).parent.parent.parent

PICTURE_MARKS = ("", "gh-light-mode-only", "gh-dark-mode-only")
"""What may stand behind the address of a picture: whether it is for light or for dark pages."""


def run(folder: Path, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, as a reader would. A variable of the environment that is None is removed."""
    return _run([sys.executable, *arguments], folder, environment)


def _run(command: list[str], folder: Path, environment: Mapping[str, str | None]) -> subprocess.CompletedProcess[str]:
    changed = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    given = {name: value for name, value in changed.items() if value is not None}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=200)


def run_tests(folder: Path, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, without what only turnwise's own tests need, nor the options of their run."""
    command = ("-m", "pytest", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": None}
    return run(folder, *command, *arguments, **alone, **environment)


def run_block(folder: Path, block: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run a block of a page: with pytest if there are tests in it, else as a program."""
    (folder / "test_block.py").write_text(block, encoding="utf-8")
    is_test = re.search(r"^(?:(?:async )?def test_|class Test)", block, re.MULTILINE)
    if is_test:
        return run_tests(folder, "-q", "test_block.py", **environment)
    return _run([*python(), "test_block.py"], folder, environment)


def paths_of_pages() -> list[str]:
    """Return the paths of all pages of the site, in the repository."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))


class Page:
    """A page of the repository, by its path."""

    def __init__(self, path: str) -> None:
        self.path = ROOT / path
        self.text = self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[str]:
        """The code blocks of Python, in order."""
        return re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)

    @cached_property
    def files(self) -> dict[str, str]:
        """The blocks that are files of a project, by the name in their first line."""
        named = ((re.match(r"# ([\w.]+(?:, mended)?)\n", block), block) for block in self.blocks)
        return {match[1]: block for match, block in named if match}

    @cached_property
    def programs(self) -> list[str]:
        """The other blocks, each of which is a complete program or test file."""
        return [block for block in self.blocks if block not in self.files.values()]

    @cached_property
    def served_tools(self) -> list[list[str]]:
        """The names of tools in each `turnwise serve --tools` of the page."""
        return [names.split(",") for names in re.findall(r"^turnwise serve --tools (\S+)$", self.text, re.MULTILINE)]

    def section(self, title: str) -> str:
        """Return the text below a heading, up to the next heading."""
        return self.text.split(f"# {title}\n", 1)[1].split("\n#")[0]

    def headings(self) -> set[str]:
        """Return its headings, as links name them."""
        titles: list[str] = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", self.text, flags=re.DOTALL), re.MULTILINE)
        return {f"#{re.sub(r'[^a-z0-9 _-]', '', title.lower()).replace(' ', '-')}" for title in titles}

    def links(self) -> list[str]:
        """Return its links within the repository."""
        return [link for link in re.findall(r"\]\(([^)\s]+)\)", self.text) if "://" not in link]

    def broken_links(self) -> list[str]:
        """Return the links that name no file of the repository, or no heading of a page."""
        return [link for link in self.links() if not self._leads_somewhere(link)]

    def _leads_somewhere(self, link: str) -> bool:
        path, mark, heading = link.partition("#")
        target = self.path.parent / path if path else self.path
        if not target.exists():
            return False
        if target.suffix == ".png":
            return heading in PICTURE_MARKS
        return not mark or f"#{heading}" in Page(os.path.relpath(target, ROOT)).headings()


def table(text: str, title: str) -> dict[str, list[str]]:
    """The rows of the table with this first column, by their first cell."""
    below = text.split(f"| {title} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("| ").split(" | ")] for row in below)
    return {first.strip("` "): rest for first, *rest in cells}
