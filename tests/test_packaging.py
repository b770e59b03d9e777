"""The tree installs as one package, and the floors in it keep to themselves.

The folders at the top of the tree become `turnwise.states`, `turnwise.engine` and so on. Each class must exist once:
a module imported by a second name is a second module, whose states equal none of the first one's. So the mapping, the
way modules are imported, and what an import drags in are all tested.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]

STAYS_AT_HOME = {"benchmarks", "docs", "examples", "tests"}
NOT_OURS = {"__pycache__", "build", "dist"}

# alembic runs these files by their path, so they belong to no package and have nothing to be relative to.
RUN_BY_PATH = ROOT / "persistence" / "migrations"


def python_files(folder: Path = ROOT) -> Iterator[Path]:
    """Every Python file that we wrote, below `folder`."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and entry.name not in NOT_OURS and not entry.name.startswith("."):
            yield from python_files(entry)
        elif entry.suffix == ".py":
            yield entry


def shipped_files() -> list[Path]:
    """Every Python file that a user gets."""
    return [file for file in python_files() if file.relative_to(ROOT).parts[0] not in STAYS_AT_HOME]


def package_of(file: Path) -> str:
    """The package that a shipped file belongs to."""
    return ".".join(["turnwise", *file.relative_to(ROOT).parent.parts])


def folder_of(package: str) -> Path:
    """The folder that a package is made from."""
    return ROOT.joinpath(*package.split(".")[1:])


def absolute_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Each module that `file` imports by an absolute name, with the place where it does."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            yield name, f"{file.relative_to(ROOT)}:{node.lineno} imports {name}"


def loaded_by(statement: str, folder: Path) -> set[str]:
    """The names of all modules that a fresh Python, started in `folder`, has loaded after `statement`."""
    program = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def declared_data() -> list[Path]:
    """The files that are not Python and ship all the same."""
    data = SETUPTOOLS["package-data"]
    return [file for package, patterns in data.items() for each in patterns for file in folder_of(package).glob(each)]


def build_wheel(folder: Path) -> Path:
    """Build the wheel offline from a copy of the tree, because setuptools leaves `build/` where it works."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "*.egg-info", *NOT_OURS))
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--wheel-dir", folder, tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("turnwise-*.whl"))


class TestTheMapping:
    """`package-dir = { "turnwise" = "." }`, and a list of packages that a person keeps."""

    def test_the_list_of_packages_is_the_list_of_folders(self) -> None:
        """pyproject.toml names each folder that holds shipped Python files, and no other."""
        assert sorted(SETUPTOOLS["packages"]) == sorted({package_of(file) for file in shipped_files()})

    def test_each_package_has_an_init(self) -> None:
        """A folder without `__init__.py` would still import, but import-linter would not see it."""
        assert [name for name in SETUPTOOLS["packages"] if not (folder_of(name) / "__init__.py").exists()] == []

    def test_tests_and_examples_are_no_packages(self) -> None:
        """With an `__init__.py` they would look like floors of `turnwise` to the tools."""
        assert [name for name in sorted(STAYS_AT_HOME) if (ROOT / name / "__init__.py").exists()] == []

    def test_the_root_holds_no_module_but_the_face_of_the_package(self) -> None:
        """Every Python file beside pyproject.toml ships as a module of `turnwise`."""
        assert [file.name for file in ROOT.glob("*.py")] == ["__init__.py"]

    def test_static_tools_find_the_package_through_the_link(self) -> None:
        """`.typing/turnwise` is a link to the root that survives a clone into any folder."""
        assert (ROOT / ".typing" / "turnwise").readlink() == Path("..")

    def test_a_wheel_holds_the_packages_and_nothing_else(self, tmp_path: Path) -> None:
        """What a user installs: each shipped file under `turnwise/`, the declared data, and no global module."""
        wheel = build_wheel(tmp_path)

        contents = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        shipped = [*shipped_files(), *declared_data()]
        assert contents == {f"turnwise/{file.relative_to(ROOT).as_posix()}" for file in shipped}

    def test_a_wheel_keeps_the_license(self, tmp_path: Path) -> None:
        """The licence text travels with every copy, as section 4(a) of the licence asks."""
        wheel = build_wheel(tmp_path)

        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


class TestOneNameForEachModule:
    """Relative inside the package, `turnwise.…` outside of it, and nothing else."""

    def test_nobody_imports_a_floor_by_its_bare_name(self) -> None:
        """`import states` would make a second copy of every class in it."""
        floors = {file.relative_to(ROOT).parts[0] for file in shipped_files() if file.parent != ROOT}

        places = [
            place for file in python_files() for name, place in absolute_imports(file) if name.split(".")[0] in floors
        ]

        assert places == []

    def test_inside_the_package_imports_are_relative(self) -> None:
        """The package does not say its own name, so it has no way to meet another copy of itself."""
        inside = [file for file in shipped_files() if not file.is_relative_to(RUN_BY_PATH)]

        places = [
            place for file in inside for name, place in absolute_imports(file) if name.split(".")[0] == "turnwise"
        ]

        assert places == []


class TestWhatAnImportCosts:
    """`import turnwise` is cheap, and a floor loads nothing from the floors above it."""

    def test_the_machine_loads_no_loop_no_model_and_no_store(self, tmp_path: Path) -> None:
        """`turnwise.states` runs where there is no event loop, no model and no database."""
        loaded = loaded_by("import turnwise.states", tmp_path)

        assert loaded & {"alembic", "anyio", "asyncio", "litellm", "sqlalchemy"} == set()

    @pytest.mark.parametrize("module", ["turnwise", "turnwise.states"])
    def test_an_import_loads_no_floor_above(self, module: str, tmp_path: Path) -> None:
        """Public names are looked up on first use, so a program pays for the floors that it uses."""
        loaded = loaded_by(f"import {module}", tmp_path)

        assert loaded & {f"turnwise.{floor}" for floor in ("effects", "engine", "hosts", "persistence")} == set()

    def test_the_face_of_the_package_loads_no_model_and_no_store(self, tmp_path: Path) -> None:
        """`import turnwise` costs no more than pydantic and transitions do; litellm alone takes seconds."""
        loaded = loaded_by("import turnwise", tmp_path)

        assert loaded & {"alembic", "litellm", "sqlalchemy"} == set()

    def test_the_testing_kit_loads_only_the_machine(self, tmp_path: Path) -> None:
        """`turnwise.testing` reaches for the other floors inside functions: a law of the machine needs no store. What
        is made of parts of the store stands apart."""
        files = [file for file in python_files(ROOT / "testing") if file.parent.name != "stored"]
        names = [f"{package_of(file)}.{file.stem}".removesuffix(".__init__") for file in files]

        loaded = loaded_by(f"import {', '.join(names)}", tmp_path)

        assert loaded & {f"turnwise.{floor}" for floor in ("effects", "engine", "hosts", "persistence")} == set()


class TestTheMachineIsPure:
    """The import-linter contracts hold the floors; these hold what a list of forbidden modules cannot say."""

    def test_it_needs_only_pydantic_and_transitions(self) -> None:
        """Besides these two (pydantic_core is a part of pydantic), `states/` imports only the standard library."""
        allowed = sys.stdlib_module_names | {"pydantic", "pydantic_core", "transitions"}

        places = [
            place
            for file in python_files(ROOT / "states")
            for name, place in absolute_imports(file)
            if name.split(".")[0] not in allowed
        ]

        assert places == []

    def test_it_never_reads_the_clock(self) -> None:
        """Time comes in on events, or a replay would not come out the same: no `now()`, `utcnow()` or `today()`."""
        places = [
            f"{file.relative_to(ROOT)}:{node.lineno}"
            for file in python_files(ROOT / "states")
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"now", "utcnow", "today"}
        ]

        assert places == []
