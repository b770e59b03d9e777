"""Makes docstrings into what the API pages show: programs in colour, and names that lead to where they are explained.

Docstrings are written for people who read the source: programs are indented, names stand in backticks, and pages are
named by their path in the repository. mkdocs.yml lists this file as an extension of griffe, which reads the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

PAGES = Path(__file__).parent.parent / "reference" / "api"
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
"""A name that a page shows."""

CODE = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)")
NAME = re.compile(r"(?<![\[`])`([A-Za-z_][\w.]*)`(?![\]`])")
PAGE = re.compile(r"docs/([\w/-]+)\.md")


class ApiDocstrings(griffe.Extension):
    """Changes the docstrings of a package when all of it has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change the docstrings of a package and of all that is in it."""
        shown = {path: _shown(pkg, path) for path in _paths()}
        places = {path.rpartition(".")[2]: path for path in shown}
        for path, item in shown.items():
            places |= {f"{path.rpartition('.')[2]}.{name}": f"{path}.{name}" for name in _public(item)}
        for path, item in shown.items():
            own = {name: f"{path}.{name}" for name in _public(item)}
            for documented in [item, *(item.members[name] for name in own)]:
                _change(documented, path, {**places, **own})


def _paths() -> Iterator[str]:
    """Yield the paths of all names that a page shows."""
    for page in sorted(PAGES.glob("*.md")):
        yield from SHOWN.findall(page.read_text(encoding="utf-8"))


def _shown(pkg: griffe.Module, path: str) -> Any:
    """Return what a page shows under this path, wherever it is defined."""
    item: Any = pkg[path.removeprefix("turnwise.")]
    return item.final_target if item.is_alias else item


def _public(item: Any) -> list[str]:
    """Return the names of the members that are shown with it."""
    kinds = ("class", "module")
    members = item.members.items() if item.kind.value in kinds else ()
    return [name for name, member in members if not name.startswith("_") and not member.is_alias]


def _change(item: Any, owner: str, places: dict[str, str]) -> None:
    if item.docstring is not None:
        item.docstring.value = changed(item.docstring.value, {name: to for name, to in places.items() if to != owner})


def changed(text: str, places: dict[str, str]) -> str:
    """Return a docstring as Markdown for the site; `places` are the paths of the names that have a place there."""
    parts = CODE.split(f"{text}\n")
    for number, part in enumerate(parts):
        if number % 2:
            program = "".join(line[4:] or "\n" for line in part.rstrip("\n").splitlines(keepends=True))
            parts[number] = f"```python\n{program}\n```\n\n"
        else:
            parts[number] = PAGE.sub(_linked, NAME.sub(lambda found: _named(found, places), part))
    return "".join(parts).rstrip("\n")


def _named(found: re.Match[str], places: dict[str, str]) -> str:
    name = found[1].removeprefix("turnwise.").removeprefix("testing.").removeprefix("states.")
    return f"[{found[0]}][{places[name]}]" if name in places else found[0]


def _linked(found: re.Match[str]) -> str:
    """Return a link from a page below reference/api/ to another page."""
    title = (PAGES.parent.parent / f"{found[1]}.md").read_text(encoding="utf-8").partition("\n")[0]
    return f"[{title.removeprefix('# ')}](../../../{found[1]}/)"
