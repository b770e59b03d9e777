"""The shape of the source tree: rooms with one purpose, short functions, and imports without cycles.

The floors themselves, and what `states/` may not import, are contracts of import-linter in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .support.source.source_tree import PACKAGES, ROOT, cycles, import_graph, python_files, relative, tree_of

MAX_LINES_OF_A_FUNCTION = 45

SHIPPED = python_files(*PACKAGES)
WRITTEN = [ROOT / "__init__.py", *python_files(*PACKAGES, "benchmarks", "docs", "examples")]
"""Every Python file but the tests."""

MIGRATIONS = {ROOT / "persistence" / store / "migrations" / "versions" for store in ("postgres", "sqlite")}
"""A migration is never changed once it was released, so it keeps the length that it had."""

NO_ROOMS = {"corpus", "fixtures", "simulation", "support"}
"""Folders of tests/ that hold what tests share."""


def rooms() -> list[Path]:
    """Return the packages that are shipped, without the generated folders beside them."""
    return sorted({path.parent for path in SHIPPED} - MIGRATIONS)


def begins_with_one_sentence(path: Path) -> bool:
    """Whether the first paragraph of a module's docstring is one sentence."""
    docstring = ast.get_docstring(tree_of(path)) or ""
    return re.fullmatch(r"[^.]+(\.\w[^.]*)*\.", docstring.split("\n\n")[0]) is not None


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines the body of a function has below its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


class TestImports:
    """Arrows between modules lead one way."""

    def test_no_modules_import_each_other_in_a_cycle(self) -> None:
        """One inside a function is made when it is needed, and one for type checking never."""
        found = {frozenset(name.removeprefix("turnwise.") for name in cycle) for cycle in cycles(import_graph())}

        assert found == set()

    def test_cycles_are_found(self) -> None:
        """Also those that lead over several modules."""
        graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"f", "d"}, "f": set()}

        assert cycles(graph) == {frozenset("bc"), frozenset("de")}


class TestRooms:
    """A folder has one purpose, and says which."""

    def test_each_says_in_one_sentence_what_belongs_there(self) -> None:
        """The docstring of its `__init__` begins with that sentence."""
        silent = {relative(room) for room in rooms() if not begins_with_one_sentence(room / "__init__.py")}

        assert silent == set()

    def test_the_tests_are_in_the_folder_of_what_they_test(self) -> None:
        """So the test for a rule is found by its path."""
        folders = {path.parent.relative_to(ROOT / "tests") for path in python_files("tests")}
        rooms_of_tests = {folder for folder in folders if not NO_ROOMS & set(folder.parts)}

        assert [str(folder) for folder in sorted(rooms_of_tests) if not (ROOT / folder).is_dir()] == []


class TestSize:
    """What is read at once is short. Tests are lists of claims, and may be longer."""

    def test_no_function_is_long(self) -> None:
        """45 lines below the docstring."""
        long = [
            f"{relative(path)}:{function.lineno} {function.name} has {lines_of_code(function)} lines"
            for path in WRITTEN
            if path.parent not in MIGRATIONS
            for function in functions(path)
            if lines_of_code(function) > MAX_LINES_OF_A_FUNCTION
        ]

        assert long == []


def case_numbers() -> re.Pattern[str]:
    """Return a pattern for the numbers of cases and seeds, by which the tests name the requirements."""
    return re.compile(r"\b[PSBJDH][1-9]\d?\b(?!\.)|\bseeds? 0\d\d\b")


def texts() -> list[Path]:
    """Return the code and the pages that users read."""
    return [
        *WRITTEN,
        *ROOT.glob("*.md"),
        *(page for page in (ROOT / "docs").rglob("*.md") if page.stem != "requirements"),
    ]


class TestNumbersOfCases:
    """A reader outside of the tests cannot resolve them."""

    def test_they_stand_in_tests_only(self) -> None:
        """And in docs/reference/requirements.md, which says what each of them is."""
        assert [relative(path) for path in texts() if case_numbers().search(path.read_text("utf-8"))] == []
