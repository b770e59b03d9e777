"""The page about testing tells the truth: its programs run, its planted bug is found, and its mended version passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..support.pages import ROOT, Page, run_block, run_tests

pytestmark = pytest.mark.timeout(240)  # a search in a process of its own, on a machine that may be busy

PAGE = Page("docs/testing.md")
OURS = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
(OUTPUT,) = re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL)


Machine = dict[str, str | None]
WHEREVER = pytest.mark.parametrize(
    "machine",
    [
        pytest.param({"CI": "true"}, id="build server"),
        pytest.param({"CI": None}, id="developer's machine", marks=pytest.mark.deep),
    ],
)
"""On a build server, pytest and Hypothesis have other defaults, which a profile must override."""


def told(text: str) -> list[tuple[str, str]]:
    """What a program lets happen: the type of each event, and what became of it. On a build server, pytest's summary of
    a failure repeats all of it."""
    failure, *_ = text.split("= short test summary info =")
    return re.findall(r"history\.take\((\w+)\(.*\)  # (.+)", failure)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files on the page, in a folder, with the bug."""
    for name, block in PAGE.files.items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


def mend(project: Path) -> None:
    """Do what the page says about the bug."""
    (project / "panel.py").write_text(PAGE.files["panel.py, mended"], encoding="utf-8")


def search(project: Path, seed: int, machine: Machine) -> list[tuple[str, str]]:
    """Search for the bug as the page says, and tell what was found; it is saved in a folder of this seed."""
    options = ["--hypothesis-profile=deep", f"--hypothesis-seed={seed}", "--tb=native"]
    folder = f"fixtures-{seed}"
    found = run_tests(project, *options, "test_panel.py", TURNWISE_FIXTURES=folder, **machine)
    assert f"Saved as {folder}/only_what_runs_spins-" in found.stdout
    return told(found.stdout)


@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block that is no file of the example is whole: a program that ends well, or tests that pass, with no more
    than what the extra `testing` brings."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


@WHEREVER
def test_its_planted_bug_is_found_and_kept_from_coming_back(machine: Machine, project: Path) -> None:
    """Each search finds the bug, by one way or another, and soon one by the way that stands on the page. What that one
    saved, and the program on the page, fail until the bug is mended; then everything passes."""
    pasted = OUTPUT[OUTPUT.index("from datetime") : OUTPUT.index("Saved as")]
    (project / "test_pasted.py").write_text(pasted, encoding="utf-8")

    ways = (search(project, seed, machine) for seed in range(10))
    found = next((seed for seed, way in enumerate(ways) if way == told(OUTPUT) != []), None)
    assert found is not None, "no seed takes the way on the page"
    (project / f"fixtures-{found}").rename(project / "fixtures")
    again = run_tests(project, "test_fixtures.py", "test_pasted.py", **machine)
    mend(project)
    mended = run_tests(project, **machine)

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


@WHEREVER
@pytest.mark.parametrize(
    ("conftest", "option"),
    [(PAGE.files["conftest.py"], "--hypothesis-profile=deep"), (OURS, "-q")],
    ids=["the page's", "ours"],
)
def test_a_deep_search_goes_by_its_seed(conftest: str, option: str, machine: Machine, tmp_path: Path) -> None:
    """One seed tries the same each time, and another something else, on a build server, too. Ours reads from the
    environment how long to look."""
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_search.py").write_text(SEARCH)
    tried: list[str] = []

    for seed in (7, 7, 8):
        run_tests(tmp_path, option, f"--hypothesis-seed={seed}", TURNWISE_PROFILE="deep", **machine)
        tried.append((tmp_path / "tried").read_text())
        (tmp_path / "tried").unlink()

    assert tried[0] == tried[1] != tried[2]


@WHEREVER
def test_our_own_profiles_make_a_search_repeatable(machine: Machine, tmp_path: Path) -> None:
    """`conftest.py`, which the page holds up as an example: one seed tries the same each time, a deep search chooses
    another, and where something fails stands which it was."""
    (tmp_path / "conftest.py").write_text(OURS)
    (tmp_path / "test_search.py").write_text(SEARCH)
    tried: list[str] = []
    told: list[str] = []

    for profile, *seed in (("quick", "--hypothesis-seed=7"), ("quick", "--hypothesis-seed=7"), ("deep",), ("deep",)):
        ran = run_tests(tmp_path, "-q", *seed, TURNWISE_PROFILE=profile, **machine)
        told += re.findall(r"property tests: (.*) --hypothesis-seed=(.*)", ran.stdout)
        tried.append((tmp_path / "tried").read_text())
        (tmp_path / "tried").unlink()

    assert tried[0] == tried[1]
    assert len({*tried[1:]}) == 3
    assert told[:2] == [("quick, repeat it with", "7")] * 2
    assert [profile for profile, _ in told[2:]] == ["deep, repeat it with"] * 2
    assert len({seed for _, seed in told}) == 3
