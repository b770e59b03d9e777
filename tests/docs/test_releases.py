"""What must be right before a version is published: changelog, notes, citation, and the bounds of dependencies."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from ..support.pages import ROOT, Page, table

RELEASES = Page("docs/development/releases.md")
CHANGELOG = Page("CHANGELOG.md").text
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads(PYPROJECT)["project"]
VERSION: str = PROJECT["version"]


class TestChangelog:
    """In the form of Keep a Changelog."""

    def test_versions_are_headings(self) -> None:
        """What is not released stands above, then each version with its date."""
        first, *versions = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)

        assert first == "[Unreleased]"
        assert [each for each in versions if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each)] == []

    def test_entries_stand_under_the_kind_of_change(self) -> None:
        """The subject may follow behind a colon."""
        kinds = re.findall(r"^### (\w+)", CHANGELOG, re.MULTILINE)

        assert {*kinds} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


class TestNotes:
    """The version that pyproject.toml names is described."""

    def test_a_program_is_told_what_to_change(self) -> None:
        """The newest row of the migration notes is about this minor version."""
        rows = table(RELEASES.section("Migration notes"), "Version")

        assert [*rows][-1].rpartition(".")[0] == VERSION.rpartition(".")[0]

    def test_it_gets_security_fixes(self) -> None:
        """SECURITY.md says for which minor versions there are some."""
        assert VERSION.rpartition(".")[0] in table(Page("SECURITY.md").text, "Version")

    def test_a_citation_names_what_is_cited(self) -> None:
        """In the fields that the Citation File Format requires, with the licence of the project and without a version,
        which stands in pyproject.toml alone."""
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

        assert citation.keys() >= {"cff-version", "title", "message", "authors"}
        assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
        assert "version" not in citation


class TestBounds:
    """Whatever else an application installs, turnwise is not in its way."""

    def test_an_upper_bound_says_why(self) -> None:
        """On its line, since it keeps applications from what has been mended since. The extra `dev` is nobody's."""
        published = PYPROJECT.split("[project.scripts]")[0].split("\ndev = [")[0]
        bounded = re.findall(r'^ +"[^"]*<.*$', published, re.MULTILINE)

        assert [line for line in bounded if not re.search(r'",  # \w', line)] == []

    def test_every_dependency_has_a_floor(self) -> None:
        """The oldest version on which the tests have run."""
        extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
        listed = [*PROJECT["dependencies"], *(each for name, extra in extras.items() for each in extra)]

        assert [each for each in listed if ">=" not in each and not each.startswith("turnwise[")] == []
