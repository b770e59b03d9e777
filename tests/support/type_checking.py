"""What mypy and pyright say of a program that uses turnwise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary"],
    "pyright": ["basedpyright", "--level", "error"],
}
"""The command of each type checker."""


def lines_with_errors(checker: str, program: str, folder: Path) -> list[int]:
    """Return the lines of the program in which the checker finds an error."""
    path = folder / "checked.py"
    path.write_text(program, encoding="utf-8")
    name, *options = CHECKERS[checker]
    cache = ["--cache-dir", str(folder / "cache")] if name == "mypy" else []
    command = [str(Path(sys.executable).parent / name), *options, *cache, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=250, check=False)
    found = re.findall(r"checked\.py:(\d+):.*error", ran.stdout)
    assert found or ran.returncode == 0, ran.stdout + ran.stderr
    return sorted({int(line) for line in found})


def marked_lines(program: str) -> list[int]:
    """Return the lines of the program that end in "# error"."""
    return [number for number, line in enumerate(program.split("\n"), start=1) if line.endswith("# error")]
