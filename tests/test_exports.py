"""Whatever stands in a public signature can be imported from `turnwise` or `turnwise.states`, to annotate with it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import turnwise
import turnwise.states

from .support.cases import holds_for
from .support.type_checking import BY_EACH_CHECKER, lines_with_errors, marked_lines

EXPORTED = {*turnwise.__all__, *turnwise.states.__all__}

PLAIN = {
    "AnyOutput",
    *("Block", "FilledText", "Images", "Instant", "Metadata", "Owner", "RequestText", "Revision", "Seconds", "Text"),
    *(
        "ChoiceQuestionSet",
        "CronExpression",
        "Deadline",
        "Filled",
        "GivenConversation",
        "GivenInterval",
        "GivenMessages",
        "GivenOutput",
        "GivenTools",
        "NamedProfiles",
        "Position",
        "Schema",
        "Title",
        "WireMessage",
        "ZoneName",
    ),
}
"""Aliases of plain types, most of them with constraints that are checked when a value is made: a program writes `str`,
`float`, a tuple or a list."""

SHOWN = {"Moment", "Number", "ShownCall", "ShownMessage", "ShownOutput", "ShownQuestion"}
SHOWN |= {"ShownReading", "ShownSummary", "ShownUsage", "ShownValue"}
"""Aliases of exported types, or plain ones, that say how JSON has them: a program writes `UserQuestion` or `int`."""

FOR_HANDLES = {"choices", "model_post_init"}
"""What an engine has for its handles alone, and pydantic for models with private attributes."""

PUBLIC = [(package, name) for package in (turnwise, turnwise.states) for name in package.__all__]


@cache
def own_names(module: ModuleType) -> frozenset[str]:
    """Return the names of a module that are imported from turnwise or defined as a class or an alias in it."""
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names | {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | set(_aliases(tree)))


def _aliases(tree: ast.Module) -> Iterator[str]:
    """Yield the names that stand for a type: `TurnStatus = Literal[…]`, `Turn: TypeAlias = …`."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp())
                | ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"))
            ):
                yield name
            case _:
                pass


def functions(given: Any) -> Iterator[FunctionType]:
    """Yield a function, or the public functions of a class, and of the classes of turnwise that it inherits from."""
    if isinstance(given, FunctionType):
        yield given
    elif inspect.isclass(given):
        for kind in given.__mro__:
            if kind.__module__.startswith("turnwise"):
                members = [
                    member
                    for name, member in vars(kind).items()
                    if not name.startswith("_") and name not in FOR_HANDLES
                ]
                plain = (inspect.unwrap(getattr(one, "fget", None) or getattr(one, "__func__", one)) for one in members)
                yield from (one for one in plain if isinstance(one, FunctionType))


def named(function: FunctionType) -> set[str]:
    """Return the names of turnwise in the annotations of a function."""
    own = own_names(sys.modules[function.__module__])
    found: set[str] = set()
    for annotation in function.__annotations__.values():
        tree = ast.parse(str(annotation), mode="eval")
        found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in own}
    return found


def fields(given: Any) -> set[str]:
    """Return the names of turnwise in the fields of a class of data."""
    if not inspect.isclass(given):
        return set()
    found: set[str] = set()
    for kind in given.__mro__:
        if kind.__module__.startswith("turnwise"):
            own = own_names(sys.modules[kind.__module__])
            for name, annotation in inspect.get_annotations(kind).items():
                if not name.startswith("_") and not str(annotation).startswith("ClassVar"):
                    tree = ast.parse(str(annotation), mode="eval")
                    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in own}
    return found


@holds_for(("package", "name"), PUBLIC)
def test_every_type_in_a_signature_is_exported(package: ModuleType, name: str) -> None:
    """Parameters, results and fields of public classes and functions are of types that a program can name."""
    given = getattr(package, name)

    used = fields(given).union(*(named(function) for function in functions(given)))

    assert {name for name in used if not name.startswith("_")} - EXPORTED - PLAIN - SHOWN == set()


def test_the_version_is_that_of_the_installed_package() -> None:
    """Programs and people look for it here, and it is listed among the names of the package."""
    assert turnwise.__version__ == version("turnwise")
    assert "__version__" in turnwise.__all__
    assert "__version__" in dir(turnwise)


SAME_NAMES = """
import turnwise.states.transcript, turnwise.states.machine
from turnwise.states import transcript
print(callable(transcript), callable(turnwise.states.transcript))
"""


@pytest.mark.slow
def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    """Also where the module was imported first."""
    ran = subprocess.run([sys.executable, "-c", SAME_NAMES], capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == ("True True\n", "")


UNKNOWN_NAMES = """
from turnwise import AnyState  # error
from turnwise import Engine, __version__, presets
from turnwise.persistence import Stoer  # error
from turnwise.persistence import Store
from turnwise.testing import ScriptedLLM  # error
from turnwise.testing import ScriptedLlm
"""


@pytest.mark.slow
@BY_EACH_CHECKER
def test_type_checkers_report_a_name_that_does_not_exist(checker: str, tmp_path: Path) -> None:
    """Names are imported on first use, and a misspelt one is an error for mypy and pyright all the same."""
    assert lines_with_errors(checker, UNKNOWN_NAMES, tmp_path) == marked_lines(UNKNOWN_NAMES)
