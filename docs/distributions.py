"""Builds what is published, a source distribution and a wheel, and checks their metadata.

python docs/distributions.py           into dist/, which is emptied before
python docs/distributions.py FOLDER    into this folder

They are built from a copy of the files that git tracks, or would track: nothing that lies about in the tree gets in,
and nothing is left behind in it. The wheel is built from the source distribution, so that this one is known to suffice.
Needs what the extra `dev` installs, and no network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from generator.published_readme import published_readme

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] = sys.argv[1:]) -> int:
    """Build and check. Returns the exit status: 0, or that of the program that failed."""
    folder = Path(arguments[0]).resolve() if arguments else ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        build(folder)
    except subprocess.CalledProcessError as error:
        return error.returncode
    for distribution in sorted(folder.iterdir()):
        print(f"{distribution.name}  {distribution.stat().st_size / 1000:,.0f} kB")
    return 0


def build(folder: Path) -> None:
    """Write both distributions into a folder. Raises `CalledProcessError`, once the program has said what is wrong."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "turnwise"
        copy_tree(tree)
        _write_readme(tree)
        _run("build", "--no-isolation", "--outdir", str(folder), str(tree))
    _run("twine", "check", "--strict", *map(str, sorted(folder.iterdir())))


def copy_tree(tree: Path) -> None:
    """Copy the files of the repository, as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():  # not one that was removed and is still tracked
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


def _write_readme(tree: Path) -> None:
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = tree / "README.md"
    shown = published_readme(
        readme.read_text(encoding="utf-8"), project["version"], project.get("urls", {}).get("Source")
    )
    readme.write_text(shown, encoding="utf-8")


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        done.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
