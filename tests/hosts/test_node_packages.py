"""The npm packages of the tests: what is installed is what package-lock.json says, from any registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..support.npm.node_packages import DECLARED, NodePackages, installed_packages

pytestmark = pytest.mark.slow


def test_every_package_has_a_digest_and_no_address() -> None:
    """A registry of one's own may serve it, and may not change it."""
    packages = json.loads((DECLARED / "package-lock.json").read_text("utf-8"))["packages"]

    assert {name for name, package in packages.items() if name and "integrity" not in package} == set()
    assert {name for name, package in packages.items() if "resolved" in package} == set()


def test_a_module_imports_the_packages(npm: NodePackages, tmp_path: Path) -> None:
    """Wherever the file of the module is."""
    module = tmp_path / "version.mjs"
    module.write_text('import typescript from "typescript"; console.log(typescript.version, process.argv[2])', "utf-8")

    assert npm.program(module, "again").split() == ["5.9.3", "again"]


@pytest.mark.parametrize("ci", [True, False])
def test_without_node_a_test_is_skipped_but_not_in_ci(ci: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In CI nobody reads the reasons why tests were skipped."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true" if ci else "")

    with pytest.raises(pytest.fail.Exception if ci else pytest.skip.Exception, match="`make browser` installs it"):
        installed_packages()
