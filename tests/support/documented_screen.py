"""The client of docs/guides/speech.md that shows an answer while it is written, so that tests try what it says."""

from __future__ import annotations

import ast
from functools import cache
from typing import Protocol

from turnwise import Update

from .pages import Page


class Screen(Protocol):
    """What the client shows."""

    messages: list[str]
    draft: str

    def show(self, update: Update) -> None:
        """Show an update."""
        ...


def new_screen() -> Screen:
    """Return an empty screen."""
    screen: Screen = _documented_class()()
    return screen


@cache
def _documented_class() -> type[Screen]:
    (program,) = (one for one in Page("docs/guides/speech.md").programs if "class Screen:" in one)
    body = ast.parse(program).body
    wanted = [one for one in body if isinstance(one, ast.Import | ast.ImportFrom) or _is_screen(one)]
    names: dict[str, type[Screen]] = {}
    exec(compile(ast.Module(wanted, []), "docs/guides/speech.md", "exec"), names)
    return names["Screen"]


def _is_screen(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ClassDef) and statement.name == "Screen"
