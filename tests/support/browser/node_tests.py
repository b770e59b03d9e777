"""Runs the tests of the page's modules that need no browser, with Node's own test runner."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..source.source_tree import ROOT

STATIC = ROOT / "hosts" / "page" / "static"


def check_modules(node: str, tests: Path, folder: Path, **environment: str) -> None:
    """Run the tests in this file beside a copy of the page's modules, which they import, in the empty `folder`. They
    read `environment`. Raises `AssertionError` with what the runner printed if one fails."""
    modules = folder / "modules"
    shutil.copytree(STATIC, modules)
    (modules / "package.json").write_text('{"type": "module"}')
    shutil.copy(tests, modules)

    run = subprocess.run(
        [node, "--test", str(modules / tests.name)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
