"""The page about extending turnwise: its programs run, and its changes of the machine work."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwise.states.effects import EFFECTS, AwaitedEffect, Effect
from turnwise.states.events import Answer, EffectFailed

from ..support.pages import ROOT, Page, run, run_block, table

pytestmark = pytest.mark.timeout(240)  # programs in processes of their own, on a machine that may be busy

PAGE = Page("docs/development/extending.md")
BLOCKS: list[tuple[str, str, str]] = re.findall(r"```(\w+)\n(?:# (\S+\.py)\n)?(.*?)```", PAGE.text, re.DOTALL)
PROGRAMS = [text for language, path, text in BLOCKS if language == "python" and not path]
PACKAGES = ("effects", "engine", "persistence", "states", "testing")
KIT = ("tests/simulation", "tests/support/scenarios", "examples")


def changed(source: str, hunk: str) -> str:
    """Apply one hunk: its lines without `+` must stand in the source once, and those without `-` take their place."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert source.count(before) == 1, before
    return source.replace(before, after)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `turnwise` is this project with the changes of the page, and the program that uses them."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "turnwise"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in KIT:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("__init__.py", "__init__.pyi", "py.typed"):
        shutil.copy(ROOT / file, package)
    for language, path, text in BLOCKS:
        if language == "diff":
            source = (package / path).read_text(encoding="utf-8")
            for hunk in text.split("@@\n"):
                source = changed(source, hunk)
            (package / path).write_text(source, encoding="utf-8")
        elif path:
            (folder if path == "program.py" else package).joinpath(path).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    """Each block without a file name is a whole program that ends well; what it claims it asserts."""
    ran = run_block(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_the_state_works_in_an_engine(extended: Path) -> None:
    """With the changes of the page, its last program ends well."""
    ran = run(extended, "program.py", PYTHONPATH=str(extended))

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_the_kit_holds_for_the_state_at_once(extended: Path) -> None:
    """Simulations of the changed machine keep every promise, and the new rows are walked."""
    simulated = run(extended, "-m", "tests.simulation", "--seeds", "20", PYTHONPATH=str(extended))

    assert (simulated.returncode, simulated.stderr) == (0, "")


def test_it_names_every_file_that_is_touched() -> None:
    """The changes stand in these files and in no others: a change of turnwise that scatters a fact would add one."""
    touched = {path for _, path, _ in BLOCKS if path and path != "program.py"}

    assert touched == {
        "states/events.py",
        "states/effects.py",
        "states/states.py",
        "states/choices.py",
        "states/table.py",
        "states/handlers/turns.py",
        "states/guards.py",
        "states/policy.py",
        "testing/generation/vocabulary.py",
    }


def test_it_says_what_follows_each_failure() -> None:
    """The table of failures has each effect that can be answered with `EffectFailed`."""
    rows = table(PAGE.text, "the effect that failed")
    named = [name for row in rows for name in re.findall(r"\w+", row)]

    assert sorted(named) == sorted(kind.__name__ for kind in EFFECTS if EffectFailed in answers_of(kind))


def answers_of(kind: type[Effect]) -> Sequence[type[Answer]]:
    """The answers that an effect of this type can have, if it is awaited."""
    return kind.ANSWERS if issubclass(kind, AwaitedEffect) else ()


def test_the_store_that_it_refers_to_is_there() -> None:
    """`examples/memory_store.py` defines the class that the page hands to an engine."""
    (path,) = set(re.findall(r"`(examples/\w+\.py)`", PAGE.text))

    assert "class MemoryStore" in (ROOT / path).read_text(encoding="utf-8")
