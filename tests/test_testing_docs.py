"""The page about testing tells the truth: its programs run, its planted bug is found, and its mended version passes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .pages import ROOT, Page, run_block, run_tests

pytestmark = pytest.mark.timeout(240)  # a search in a process of its own, on a machine that may be busy

PAGE = Page("docs/testing.md")
(OUTPUT,) = re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL)


def told(text: str) -> list[tuple[str, str]]:
    """What a program lets happen: the type of each event, and what became of it."""
    return re.findall(r"history\.take\((\w+)\(.*\)  # (.+)", text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files on the page, in a folder, with the bug."""
    for name, block in PAGE.files.items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from that has the package where pip puts it.

    Hypothesis also tries the constants of modules that look local to it: which of the short ways to a bug it finds
    would depend on the path of the checkout.
    """
    folder = tmp_path_factory.mktemp("lib") / "site-packages"
    folder.mkdir()
    (folder / "turnwise").symlink_to(ROOT, target_is_directory=True)
    return folder


def mend(project: Path) -> None:
    """Do what the page says about the bug."""
    (project / "panel.py").write_text(PAGE.files["panel.py, mended"], encoding="utf-8")


@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block that is no file of the example is whole: a program that ends well, or tests that pass, with no more
    than what the extra `testing` brings."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_its_planted_bug_is_found_and_kept_from_coming_back(project: Path, installed: Path) -> None:
    """The search finds the bug and says what the page says. What it saved, and the program on the page, fail until the
    bug is mended; then everything passes."""
    pasted = OUTPUT[OUTPUT.index("from datetime") : OUTPUT.index("Saved as")]
    (project / "test_pasted.py").write_text(pasted, encoding="utf-8")
    search = ["--hypothesis-profile=deep", "--hypothesis-seed=7", "--tb=native"]

    found = run_tests(project, *search, "test_panel.py", TURNWISE_FIXTURES="fixtures", PYTHONPATH=os.fspath(installed))
    again = run_tests(project, "test_fixtures.py", "test_pasted.py")
    mend(project)
    mended = run_tests(project)

    assert told(found.stdout) == told(OUTPUT) != []
    assert "Saved as fixtures/only_what_runs_spins-" in found.stdout
    assert "2 failed" in again.stdout
    assert "3 passed" in mended.stdout


def test_its_links_lead_somewhere() -> None:
    """Every link names a file of the repository or a heading of the page."""
    assert PAGE.links()
    assert PAGE.broken_links() == []


SEARCH = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_search(number):
    with open("tried", "a") as tried:
        print(number, file=tried)
    assert number < 1_000
"""


def test_our_own_profiles_make_a_search_repeatable(tmp_path: Path) -> None:
    """`conftest.py`, which the page holds up as an example: one seed tries the same each time, a deep search chooses
    another, and where something fails stands which it was."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "test_search.py").write_text(SEARCH)
    tried: list[str] = []
    told: list[str] = []

    for profile, *seed in (("quick", "--hypothesis-seed=7"), ("quick", "--hypothesis-seed=7"), ("deep",)):
        ran = run_tests(tmp_path, "-q", *seed, TURNWISE_PROFILE=profile)
        told += re.findall(r"property tests: (.*) --hypothesis-seed=(.*)", ran.stdout)
        tried.append((tmp_path / "tried").read_text())
        (tmp_path / "tried").unlink()

    assert tried[0] == tried[1] != tried[2]
    assert told[:2] == [("quick, repeat it with", "7")] * 2
    assert told[2][0] == "deep, repeat it with" and told[2][1].isdigit()
