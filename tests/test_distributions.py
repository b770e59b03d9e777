"""What is published: a source distribution and a wheel, as `make dist` builds them.

They hold what a user needs and nothing else, the index can show their metadata, and the wheel alone is enough to run
what the README promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from .support.pages import ROOT, Page
from .test_packaging import PYPROJECT, declared_data, shipped_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

VERSION = PYPROJECT["project"]["version"]

BUILT_FROM = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "pyproject.toml"}
"""What a source distribution holds beside the files of the package."""

WRITTEN_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, whose metadata was checked when they were built."""
    folder = tmp_path_factory.mktemp("distributions") / "dist"
    done = subprocess.run([sys.executable, ROOT / "docs" / "distributions.py", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel, open for reading."""
    with zipfile.ZipFile(distributions / f"turnwise-{VERSION}-py3-none-any.whl") as file:
        yield file


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """What the wheel says about itself; its body is the text that the index shows."""
    return Parser().parsestr(wheel.read(f"turnwise-{VERSION}.dist-info/METADATA").decode())


@pytest.fixture(scope="module")
def python(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel and what it requires, which come from the index, or from the
    cache of uv."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    interpreter = environment / "bin" / "python"
    uv("venv", "--python", sys.executable, environment)
    uv("pip", "install", "--python", interpreter, distributions / f"turnwise-{VERSION}-py3-none-any.whl")
    return interpreter


def installed_names() -> set[str]:
    """Return the paths of the files of the package, below its root."""
    return {file.relative_to(ROOT).as_posix() for file in (*shipped_files(), *declared_data())}


class TestContents:
    """No tests, no benchmarks, no pages of documentation and no programs that make them."""

    def test_there_is_one_of_each(self, distributions: Path) -> None:
        """Under the names that pip looks for."""
        names = {file.name for file in distributions.iterdir()}

        assert names == {f"turnwise-{VERSION}-py3-none-any.whl", f"turnwise-{VERSION}.tar.gz"}

    def test_a_wheel_holds_the_packages_and_nothing_else(self, wheel: zipfile.ZipFile) -> None:
        """A user installs each shipped file under `turnwise/`, the declared data, and no global module."""
        contents = {name for name in wheel.namelist() if ".dist-info/" not in name}

        assert contents == {f"turnwise/{name}" for name in installed_names()}

    def test_a_wheel_keeps_the_license(self, wheel: zipfile.ZipFile) -> None:
        """Each copy contains the text of the licence, as its section 4(a) requires."""
        assert f"turnwise-{VERSION}.dist-info/licenses/LICENSE" in wheel.namelist()

    def test_a_source_distribution_holds_what_a_wheel_is_built_from(self, distributions: Path) -> None:
        """And the texts that whoever packages it for others looks for."""
        with tarfile.open(distributions / f"turnwise-{VERSION}.tar.gz") as archive:
            paths = [PurePosixPath(member.name) for member in archive if member.isfile()]

        contents = {"/".join(path.parts[1:]) for path in paths if path.parts[1] != "turnwise.egg-info"}
        assert contents == installed_names() | BUILT_FROM | WRITTEN_BY_SETUPTOOLS
        assert {path.parts[0] for path in paths} == {f"turnwise-{VERSION}"}


class TestWhatTheIndexShows:
    """The metadata of the wheel."""

    def test_the_text_has_no_link_that_is_relative(self, metadata: Message) -> None:
        """On the page of an index it would lead nowhere, and a picture would be missing."""
        shown = Page("README.md")
        shown.text = str(metadata.get_payload())

        assert metadata["Description-Content-Type"] == "text/markdown"
        assert shown.text.startswith("# turnwise\n")
        assert shown.links() == []
        assert "<img" not in shown.text or 'src="http' in shown.text

    def test_it_says_under_what_licence_and_for_which_pythons(self, metadata: Message) -> None:
        """In the fields that programs read."""
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata["Requires-Python"] == PYPROJECT["project"]["requires-python"]


class TestForTypeCheckers:
    """What a type checker reads in the installed package."""

    def test_the_type_of_every_public_name_is_said(self, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
        """None is inferred from a value, which type checkers do differently."""
        environment = tmp_path / "venv"
        venv.create(environment, symlinks=True)
        site = next(environment.glob("lib/python*/site-packages"))
        wheel.extractall(site)
        # The packages that the types are made of are those of the tests.
        (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")

        command = [Path(sys.executable).parent / "basedpyright", "--verifytypes", "turnwise", "--ignoreexternal"]
        path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
        ran = subprocess.run(
            [*command, "--outputjson"], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        report = json.loads(ran.stdout)["typeCompleteness"]

        inferred = [
            f"{symbol['name']}: {each['message']}"
            for symbol in report["symbols"]
            if not symbol["isTypeKnown"]
            for each in symbol["diagnostics"]
            if "partially unknown" not in each["message"]  # it is made of what another line is about
        ]
        assert inferred == []
        assert report["completenessScore"] == 1
        assert report["packageRootDirectory"] == str(site / "turnwise")
        assert "turnwise.engine.engine.Engine.open" in {symbol["name"] for symbol in report["symbols"]}


class TestInAnEmptyEnvironment:
    """With the wheel and what it requires, no extra, and nothing of this tree."""

    @pytest.mark.parametrize("number", range(len(Page("README.md").programs)))
    def test_the_programs_of_the_readme_run(self, number: int, python: Path, tmp_path: Path) -> None:
        """Each as a reader would start it."""
        program = tmp_path / "program.py"
        program.write_text(Page("README.md").programs[number], encoding="utf-8")

        ran = run_in(tmp_path, python, program.name)

        assert (ran.returncode, ran.stderr) == (0, "")

    def test_every_dependency_is_compatible(self, python: Path) -> None:
        """No installed package asks for another version of another one."""
        uv("pip", "check", "--python", python)

    def test_the_command_names_the_extra_that_it_needs(self, python: Path, tmp_path: Path) -> None:
        """Without a traceback."""
        ran = run_in(tmp_path, python, "-m", "turnwise", "--version")

        assert 'pip install "turnwise[terminal]"' in ran.stderr
        assert "Traceback" not in ran.stderr


def run_in(folder: Path, python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter in a folder, without what the tests have in their environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    command = [python, *arguments]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=200)


def uv(*arguments: str | Path) -> None:
    """Run uv. Without a network the test is skipped, but not where CI is set."""
    done = subprocess.run([sys.executable, "-m", "uv", *arguments], capture_output=True, text=True)
    if done.returncode and "CI" not in os.environ and "error sending request" in done.stderr:
        pytest.skip("No index of packages can be reached.")
    assert done.returncode == 0, done.stderr
