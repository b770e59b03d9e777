"""Node.js, and the npm packages of package.json, for tests that use real clients and checkers in JavaScript.

def test_types_can_be_generated(npm: NodePackages, tmp_path: Path) -> None:
    npm.tool("openapi-typescript", "openapi.json", "--output", "client.ts", folder=tmp_path)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from ..programs.missing import missing
from ..source.source_tree import ROOT

DECLARED = Path(__file__).parent
FILES = ("package.json", "package-lock.json", ".npmrc")
INSTALLED = ROOT / "build" / "npm"
"""git ignores this folder, and `make clean` removes it."""

PATIENCE = 240
"""How many seconds an installation or a program may take."""


def node_or_skip() -> str:
    """Return the path of Node.js. Skips the test if there is none, but fails it where `CI` is set."""
    if path := shutil.which("node"):
        return path
    missing("Node.js is not installed: `make browser` installs it, or `apt-get install nodejs npm`.")


class NodePackages:
    """The packages, installed: `folder` holds node_modules."""

    def __init__(self, node: str, folder: Path) -> None:
        self.node = node
        self.folder = folder

    def text(self, path: str) -> str:
        """Return a file of a package, for example `axe-core/axe.min.js`."""
        return (self.folder / "node_modules" / path).read_text(encoding="utf-8")

    def tool(self, name: str, *arguments: str | Path, folder: Path) -> str:
        """Run a command of a package in a folder, and return what it prints. Raises AssertionError if it fails."""
        return self._run([self.folder / "node_modules" / ".bin" / name, *arguments], folder, {})

    def program(self, file: Path, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> str:
        """Run a module that may import the packages, and return what it prints. Raises AssertionError if it fails.

        Node.js looks for packages beside the module, so it runs a copy in the folder that holds them.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            copy = shutil.copy(file, folder)
            return self._run([self.node, copy, *arguments], Path(folder), environment or {})

    def _run(self, command: list[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


def installed_packages(folder: Path = INSTALLED) -> NodePackages:
    """Install the packages, unless this was done before, and return them. Processes of one run wait for each other.

    Skips the test without Node.js and npm, and if the registry cannot be reached; where `CI` is set the test fails.
    """
    node, npm = node_or_skip(), shutil.which("npm")
    if not npm:
        missing("npm is not installed: `make browser` installs it, or `apt-get install npm`.")
    digest = hashlib.sha256(b"".join((DECLARED / name).read_bytes() for name in FILES)).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        done = folder / "installed"
        if not done.exists() or done.read_text("utf-8") != digest:
            _install(npm, folder)
            done.write_text(digest, "utf-8")
    return NodePackages(node, folder)


def _install(npm: str, folder: Path) -> None:
    for name in FILES:
        shutil.copy(DECLARED / name, folder)
    ran = subprocess.run([npm, "ci"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if ran.returncode != 0:
        missing(f"npm could not install the packages: {ran.stderr.strip() or ran.stdout.strip()}")
