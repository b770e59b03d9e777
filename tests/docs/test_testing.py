"""The page about testing: its programs run, its planted fault is found, and its corrected version passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..support.pages import ROOT, Page, run_block, run_tests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),  # a search in a process of its own, on a machine that may be busy
]

PAGE = Page("docs/guides/testing.md")
OURS = (ROOT / "tests" / "support" / "searches.py").read_text(encoding="utf-8")
(OUTPUT,) = re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL)


SEEDS = (0, 6, *range(1, 6), *range(7, 10))
"""The first ten seeds, of which the second one tried here takes the way that is on the page."""

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
    """The types of the events that a printed program takes, each with its outcome. On a build server, pytest's summary
    of a failure repeats all of it, so that part is left out."""
    failure, *_ = text.split("= short test summary info =")
    return re.findall(r"history\.take\((\w+)\(.*\)  # (.+)", failure)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files on the page, in a folder, with the planted fault."""
    for name, block in PAGE.files.items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


def mend(project: Path) -> None:
    """Correct the fault as the page says."""
    (project / "panel.py").write_text(PAGE.files["panel.py, mended"], encoding="utf-8")


def search(project: Path, seed: int, machine: Machine) -> list[tuple[str, str]]:
    """Search for the fault as the page says, and return what was found, which is saved in a folder of this seed."""
    options = ["--hypothesis-profile=deep", f"--hypothesis-seed={seed}", "--tb=native"]
    folder = f"fixtures-{seed}"
    found = run_tests(project, *options, "test_panel.py", TURNWISE_FIXTURES=folder, **machine)
    assert f"Saved as {folder}/only_what_runs_spins-" in found.stdout
    return told(found.stdout)


@pytest.mark.parametrize("program", PAGE.programs)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block that is not a file of the example is a program that succeeds, or a test file that passes, with nothing
    but what the extra `testing` installs. On a build server no example fails because it is slow."""
    ran = run_block(tmp_path, program, CI="true")

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@WHEREVER
def test_its_planted_bug_is_found_and_kept_from_coming_back(machine: Machine, project: Path) -> None:
    """Each search finds the fault; one of the first ten finds it by the events that are on the page. The fixture that
    it saved, and the program on the page, fail until the fault is corrected; then everything passes."""
    pasted = OUTPUT[OUTPUT.index("from datetime") : OUTPUT.index("Saved as")]
    (project / "test_pasted.py").write_text(pasted, encoding="utf-8")

    ways = ((seed, search(project, seed, machine)) for seed in SEEDS)
    found = next((seed for seed, way in ways if way == told(OUTPUT) != []), None)
    assert found is not None, "no seed takes the way on the page"
    (project / f"fixtures-{found}").rename(project / "fixtures")
    again = run_tests(project, "test_fixtures.py", "test_pasted.py", **machine)
    mend(project)
    mended = run_tests(project, **machine)

    assert "2 failed" in again.stdout
    assert "3 passed" in mended.stdout


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
    """The same seed tries the same examples, and another seed tries others, on a build server too. This project's
    profile takes the number of examples from the environment."""
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
    """`searches.py`, which the page shows as an example: the same seed tries the same examples, each deep search
    chooses another seed, and a failure prints it."""
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
