"""docs/models.md says which provider takes what, and names the test of each cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..effects.model.litellm import test_matrix
from ..support.source.source_tree import ROOT

PAGE = ROOT / "docs" / "models.md"
MODULE = "tests/effects/model/litellm/test_matrix.py"


def columns_shown() -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each test of the matrix, and the providers with which it runs."""
    for name, test in vars(test_matrix.TestMatrix).items():
        if name.startswith("test_"):
            (mark,) = test.pytestmark
            yield name, set(mark.args[1])


def table() -> tuple[list[str], dict[str, list[str]]]:
    """Return the tests named by the heads of the columns, and the cells of each row by its provider."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line)
    named = [re.sub(r"\W", "_", cell.strip()) for cell in head[1:]]
    return [f"test_{name}" for name in named], {row[0]: row[1:] for row in rows if row[0] in test_matrix.PROVIDERS}


def test_every_cell_says_what_its_test_shows() -> None:
    """A cell is "yes" where the test of its column runs with the provider of its row, and "–" where it does not."""
    columns, rows = table()
    shown = dict(columns_shown())

    expected = {
        provider: ["yes" if provider in shown.get(column, ()) else "–" for column in columns]
        for provider in test_matrix.PROVIDERS
    }

    assert rows == expected
    assert shown.keys() <= set(columns)


def test_the_page_says_where_the_tests_are() -> None:
    """With the command that runs one cell."""
    assert f"pytest {MODULE}" in PAGE.read_text(encoding="utf-8")
