"""The page about requirements: what it says of tests is so."""

from __future__ import annotations

import re

import pytest

from ..support.cases import holds_for
from ..support.pages import ROOT, Page, table

PAGE = Page("docs/requirements.md")
SECTIONS = ("Where they are tested", "Where HTTP and the page are tested")
TESTED = {
    number: re.findall(r"[\w/]+\.py", " ".join(files))
    for section in SECTIONS
    for number, files in table(PAGE.section(section), "Number").items()
}


@holds_for("number", TESTED)
def test_each_test_that_it_names_quotes_the_requirement(number: str) -> None:
    """In a docstring, as every test quotes what it checks."""
    assert TESTED[number]
    for name in TESTED[number]:
        assert re.search(rf"\b{number}\b", (ROOT / "tests" / name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize("title", ["Background agents (D)", "HTTP (H)"])
def test_all_requirements_of_a_section_are_listed(title: str) -> None:
    """Each of them has a row that says where it is tested."""
    listed = table(PAGE.section(title), "Number")

    assert {number for number in TESTED if number.startswith(title[-2])} == set(listed)
