"""What mypy and pyright say of programs that use turnwise, as it is in this tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

_CACHE = str(ROOT / ".mypy_cache" / "programs")
"""Shared by all runs, so that only the first one reads the whole package."""

CHECKERS = {
    "mypy": ["mypy", "--no-error-summary", "--cache-dir", _CACHE, "."],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}
"""The module of each type checker, and its options."""

BY_EACH_CHECKER = pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=pytest.mark.deep)])
"""Marks a test that each type checker must pass. pyright reads the package anew for each test, so it takes part in deep
runs only."""

_SOURCES = str(ROOT / ".typing")
_MYPY = f"[mypy]\nstrict = true\nmypy_path = {_SOURCES}\n[mypy-turnwise.*]\nfollow_imports = silent\n"
_PYRIGHT = {"typeCheckingMode": "standard", "extraPaths": [_SOURCES]}


def checked(checker: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker over the programs in this folder: mypy strictly, pyright in its usual mode."""
    (folder / "mypy.ini").write_text(_MYPY, encoding="utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps(_PYRIGHT), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", *CHECKERS[checker]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=270)


def lines_with_errors(checker: str, program: str, folder: Path) -> list[int]:
    """Return the lines of the program in which the checker finds an error."""
    (folder / "checked.py").write_text(program, encoding="utf-8")
    ran = checked(checker, folder)
    found = re.findall(r"checked\.py:(\d+):.*error", ran.stdout)
    assert found or ran.returncode == 0, ran.stdout + ran.stderr
    return sorted({int(line) for line in found})


def marked_lines(program: str) -> list[int]:
    """Return the lines of the program that end in "# error"."""
    return [number for number, line in enumerate(program.split("\n"), start=1) if line.endswith("# error")]
