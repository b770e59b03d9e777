"""Breaks the machine on purpose, thousands of times, and lists the faults that no test noticed.

A test that cannot fail says nothing. So mutmut makes copies of `states/`, each with one small fault (`<=` for `<`, an
argument left out), and runs the tests that reach it. A copy that passes them all is a *survivor*: a rule that nobody
holds the machine to, or a change that makes no difference. What is broken, and by which tests it is tried, stands in
pyproject.toml.

    python tests/mutants.py                              everything, from the beginning
    python tests/mutants.py 'turnwise.states.guards.*'   only these, again, after a new test
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutants"
LIST = FOLDER / "survivors.txt"
MUTMUT = Path(sys.executable).with_name("mutmut")

KILLED = "killed"
"""What mutmut says of a fault that failed a test. All else counts as survived, be it that no test came that far."""

MOST = 5.0
"""The percentage of survivors at which the command fails. Ours: below it, most that is left makes no difference."""


def lay_out() -> None:
    """Show mutmut the tree under the name of its package: it calls a module what the path to it says."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, target in {"turnwise": "", "tests": "tests", "pyproject.toml": "pyproject.toml"}.items():
        (FOLDER / name).symlink_to(Path("..", "..", target))


def mutmut(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run mutmut there, with few examples for each property test."""
    environment = {**os.environ, "TURNWISE_PROFILE": "mutants"}
    return subprocess.run([MUTMUT, *arguments], cwd=FOLDER, env=environment, text=True, check=True, **options)


def verdicts(patterns: list[str]) -> dict[str, str]:
    """What became of each mutant whose name fits, or of all."""
    lines = mutmut("results", "--all", "true", stdout=subprocess.PIPE).stdout.splitlines()
    verdict = dict(line.strip().split(": ", 1) for line in lines)
    return {name: verdict[name] for name in verdict if any(fnmatch(name, each) for each in patterns or ["*"])}


def write_list(survivors: Iterable[str]) -> None:
    """Write down the survivors, each with its name and what was changed."""
    shown = [mutmut("show", name, stdout=subprocess.PIPE).stdout for name in survivors]
    LIST.write_text("\n".join(shown), encoding="utf-8")


def report(verdict: dict[str, str]) -> bool:
    """Tell how many survived, and return whether they are few enough."""
    survivors = sorted(name for name, what in verdict.items() if what != KILLED)
    write_list(survivors)
    percent = 100 * len(survivors) / len(verdict)
    counts = ", ".join(f"{count} {what}" for what, count in Counter(verdict.values()).most_common())
    print(f"\n{len(verdict)} mutants: {counts}.")
    print(f"{100 - percent:.1f} % killed, {percent:.1f} % survived; those are listed in {LIST.relative_to(ROOT)}.")
    return percent < MOST


def main(patterns: list[str]) -> int:
    """Break, try and report. Returns the exit status: 1 if too many survived, or if mutmut could not do its work."""
    if not patterns or not FOLDER.exists():
        lay_out()
    try:
        mutmut("run", *patterns)
    except subprocess.CalledProcessError as failed:
        return failed.returncode
    return 0 if report(verdicts(patterns)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
