"""The source files of the project as a graph and as syntax trees, for tests of its structure."""

from __future__ import annotations

import ast
import gc
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("states", "effects", "persistence", "engine", "hosts", "testing")
"""The folders that are installed as sub-packages of `turnwise`."""

FIXTURES = ROOT / "tests" / "fixtures"
"""Files that tests read or start, some of them from other projects."""


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below these folders of the project, in order, without those that others wrote."""
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if FIXTURES not in path.parents]


def relative(path: Path) -> str:
    """Return a path as it is written in lists: from the root of the project, with slashes."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file. It is kept, and the search for garbage need not go through it again and again:
    all trees together have millions of nodes."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    gc.freeze()
    return tree


def module_name(path: Path) -> str:
    """Return the name by which a file of the package is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["turnwise", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def file_of(module: str) -> Path | None:
    """Return the file of a module of the project by its absolute name, None for a module of somebody else."""
    project, *parts = module.split(".")
    file = ROOT.joinpath(*parts)
    candidates = (file.with_suffix(".py"), file / "__init__.py") if project == "turnwise" else ()
    return next((path for path in candidates if path.is_file()), None)


def modules() -> dict[str, Path]:
    """Return each module of the package by its name, `turnwise` itself left out: it imports everything, lazily."""
    return {module_name(path): path for path in python_files(*PACKAGES)}


@cache
def imported_names(path: Path, at_once: bool = False) -> tuple[tuple[str, str | None], ...]:
    """Return what a file imports, wherever the statement stands: the module by its absolute name, and the name that is
    taken from it, None for `import module`. With `at_once`, imports inside functions and for type
    checking only are left out."""
    nodes = _nodes_run_at_once(tree_of(path)) if at_once else ast.walk(tree_of(path))
    return tuple(name for node in nodes for name in _imported_by(path, node))


def _nodes_run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_type_checking(child)):
            yield from _nodes_run_at_once(child)


def _is_for_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported_by(path: Path, node: ast.AST) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = ".".join(filter(None, (package_above(path, node.level), node.module)))
        yield from ((module, alias.name) for alias in node.names)


def package_above(path: Path, level: int) -> str:
    """Return the package that a relative import with so many dots starts from, "" for an absolute import."""
    return ".".join(["turnwise", *path.relative_to(ROOT).parts[:-level]]) if level else ""


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports when it is imported itself: neither inside functions nor for type
    checking only."""
    known = modules()
    graph: dict[str, set[str]] = {name: set() for name in known}
    for importer, path in known.items():
        for module, name in imported_names(path, at_once=True):
            target = f"{module}.{name}" if f"{module}.{name}" in known else module
            if target in known and target != importer:
                graph[importer].add(target)
    return graph


def reachable(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """Return the nodes that one or more edges lead to from `start`."""
    found: set[str] = set()
    pending = list(graph[start])
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += graph[node]
    return found


def cycles(graph: Mapping[str, Collection[str]]) -> set[frozenset[str]]:
    """Return the strongly connected components of a graph that contain a cycle."""
    reach = {node: reachable(graph, node) for node in graph}
    return {
        frozenset(other for other in targets if node in reach[other])
        for node, targets in reach.items()
        if node in targets
    }
