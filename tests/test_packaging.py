"""The source tree installs as one package, and an import loads no more of it than it needs.

The folders at the top of the tree become `turnwise.states`, `turnwise.engine` and so on. Each class must exist once:
a module that is imported under a second name is a second module, whose states equal none of the first one's. So these
tests check the list of packages, how modules import each other, and what an import loads. test_distributions.py checks
what is published.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.source.source_tree import tree_of

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]

NOT_SHIPPED = {"benchmarks", "docs", "examples", "tests"}
GENERATED = {"__pycache__", "build", "dist"}


def python_files(folder: Path = ROOT) -> Iterator[Path]:
    """Yield the Python files below `folder` that are not generated."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and entry.name not in GENERATED and not entry.name.startswith("."):
            yield from python_files(entry)
        elif entry.suffix == ".py":
            yield entry


def shipped_files() -> list[Path]:
    """Return the Python files that a user installs."""
    return [file for file in python_files() if file.relative_to(ROOT).parts[0] not in NOT_SHIPPED]


def package_of(file: Path) -> str:
    """Return the name of the package that a shipped file belongs to."""
    return ".".join(["turnwise", *file.relative_to(ROOT).parent.parts])


def folder_of(package: str) -> Path:
    """Return the folder that becomes this package."""
    return ROOT.joinpath(*package.split(".")[1:])


def absolute_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file imports by an absolute name, each with the line that imports it."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            yield name, f"{file.relative_to(ROOT)}:{node.lineno} imports {name}"


FIRST_TURN = """
import asyncio
from turnwise import Engine, Policy, tool

@tool
def look() -> str:
    'Look.'
    return 'Nothing.'

async def main():
    async with Engine.open('sqlite://', policy=Policy(), tools=[look, 'ask_user_question']) as engine:
        await (await engine.create()).send('Hello')

asyncio.run(main())
"""
"""A program that holds a conversation with the rehearsal model."""


def loaded_by(statement: str, folder: Path) -> set[str]:
    """Return the names of the modules that a new Python process, started in `folder`, has loaded after `statement`."""
    program = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def declared_data() -> list[Path]:
    """Return the files that are shipped although they are not Python."""
    data = SETUPTOOLS["package-data"]
    return [file for package, patterns in data.items() for each in patterns for file in folder_of(package).glob(each)]


class TestPackages:
    """`package-dir = { "turnwise" = "." }`, and a list of packages that is kept by hand."""

    def test_the_list_of_packages_is_the_list_of_folders(self) -> None:
        """pyproject.toml names each folder that holds shipped Python files, and no other."""
        assert sorted(SETUPTOOLS["packages"]) == sorted({package_of(file) for file in shipped_files()})

    def test_each_package_has_an_init(self) -> None:
        """A folder without `__init__.py` would still import, but import-linter would not see it."""
        assert [name for name in SETUPTOOLS["packages"] if not (folder_of(name) / "__init__.py").exists()] == []

    def test_tests_and_examples_are_not_packages(self) -> None:
        """With an `__init__.py`, tools would take them for packages of `turnwise`."""
        assert [name for name in sorted(NOT_SHIPPED) if (ROOT / name / "__init__.py").exists()] == []

    def test_the_root_holds_no_module_but_the_package_itself(self) -> None:
        """Apart from what `python -m turnwise` runs: a Python file beside pyproject.toml is shipped as a module."""
        assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}

    def test_static_tools_find_the_package_through_the_link(self) -> None:
        """`.typing/turnwise` is a relative link to the root, so it is right in any clone."""
        assert (ROOT / ".typing" / "turnwise").readlink() == Path("..")


class TestOneNameForEachModule:
    """Imports are relative inside the package and begin with `turnwise` outside of it."""

    def test_no_package_is_imported_by_its_bare_name(self) -> None:
        """`import states` would make a second copy of every class in it."""
        packages = {file.relative_to(ROOT).parts[0] for file in shipped_files() if file.parent != ROOT}

        places = [
            place for file in python_files() for name, place in absolute_imports(file) if name.split(".")[0] in packages
        ]

        assert places == []

    def test_inside_the_package_imports_are_relative(self) -> None:
        """The package never uses its own name, so it cannot load a second copy of itself."""
        places = [
            place
            for file in shipped_files()
            for name, place in absolute_imports(file)
            if name.split(".")[0] == "turnwise"
        ]

        assert places == []


@pytest.mark.slow
class TestWhatAnImportLoads:
    """`import turnwise` is cheap, and a package loads nothing of the packages above it."""

    def test_the_machine_loads_no_loop_no_model_and_no_store(self, tmp_path: Path) -> None:
        """`turnwise.states` runs where there is no event loop, no model and no database."""
        loaded = loaded_by("import turnwise.states", tmp_path)

        assert loaded & {"alembic", "anyio", "asyncio", "litellm", "sqlalchemy"} == set()

    @pytest.mark.parametrize("module", ["turnwise", "turnwise.states"])
    def test_an_import_loads_nothing_above(self, module: str, tmp_path: Path) -> None:
        """Public names are resolved on first use, so a program loads only the packages that it uses."""
        loaded = loaded_by(f"import {module}", tmp_path)

        assert loaded & {f"turnwise.{floor}" for floor in ("effects", "engine", "hosts", "persistence")} == set()

    def test_the_package_loads_no_model_and_no_store(self, tmp_path: Path) -> None:
        """`import turnwise` costs no more than pydantic and transitions do; litellm alone takes seconds."""
        loaded = loaded_by("import turnwise", tmp_path)

        assert loaded & {"alembic", "fastapi", "litellm", "sqlalchemy", "uvicorn"} == set()

    def test_the_version_is_read_when_it_is_asked_for(self, tmp_path: Path) -> None:
        """To find it among the installed packages takes longer than everything else that the import does."""
        assert "importlib.metadata" not in loaded_by("import turnwise", tmp_path)
        assert "importlib.metadata" in loaded_by("from turnwise import __version__", tmp_path)

    def test_the_engine_loads_a_third_more_than_its_libraries_at_most(self, tmp_path: Path) -> None:
        """What an engine is made of is loaded when one is opened: a program that names it may never open one."""
        engine = loaded_by("from turnwise import Engine", tmp_path)
        libraries = loaded_by("import pydantic, sqlalchemy", tmp_path)

        assert len(engine) <= 1.3 * len(libraries)
        assert engine & {"alembic", "anyio", "docstring_parser", "filelock", "httpx", "jsonschema_rs"} == set()
        assert engine & {"litellm", "pydantic_settings", "puremagic", "sqlalchemy", "transitions"} == set()

    def test_a_first_turn_loads_what_it_needs_and_no_more(self, tmp_path: Path) -> None:
        """Without a migration, a request over HTTP or a schema to check."""
        loaded = loaded_by(FIRST_TURN, tmp_path)

        assert "sqlalchemy" in loaded
        assert (
            loaded & {"alembic", "aiohttp", "httpx", "jsonschema_rs", "litellm", "mcp", "openai", "puremagic"} == set()
        )

    def test_the_testing_kit_loads_only_the_machine(self, tmp_path: Path) -> None:
        """`turnwise.testing` imports the packages above inside functions, since a law of the machine needs no store.
        The contract of a store, which needs one, is an exception."""
        files = [file for file in python_files(ROOT / "testing") if file.parent.name != "store_contract"]
        names = [f"{package_of(file)}.{file.stem}".removesuffix(".__init__") for file in files]

        loaded = loaded_by(f"import {', '.join(names)}", tmp_path)

        assert loaded & {f"turnwise.{floor}" for floor in ("effects", "engine", "hosts", "persistence")} == set()


class TestTheMachineIsPure:
    """What a list of forbidden modules, as in the contracts of import-linter, cannot express."""

    def test_it_needs_only_pydantic_and_transitions(self) -> None:
        """Besides these two (pydantic_core is a part of pydantic), `states/` imports only the standard library, and in
        its `__init__.py` what loads public names on first use."""
        allowed = sys.stdlib_module_names | {"pydantic", "pydantic_core", "transitions", "lazy_loader"}

        places = [
            place
            for file in python_files(ROOT / "states")
            for name, place in absolute_imports(file)
            if name.split(".")[0] not in allowed
        ]

        assert places == []

    def test_it_never_reads_the_clock(self) -> None:
        """Time comes in on events, so that a replay gives the same result: no `now()`, `utcnow()` or `today()`."""
        places = [
            f"{file.relative_to(ROOT)}:{node.lineno}"
            for file in python_files(ROOT / "states")
            for node in ast.walk(tree_of(file))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"now", "utcnow", "today"}
        ]

        assert places == []
