"""Finds where a module uses a private name, `_x`, that another module defines.

A private name may change at any time, so nothing outside its module depends on it: whatever a test, a host program or
the testing kit needs has a public name. A name counts as the module's own when the module defines it: as a function, a
class, a variable, or an attribute of `self` or `cls`. A private method that overrides one of a class of another module
is no definition: it depends on how that class calls itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from .source_tree import file_of, imported_names, tree_of

DOCUMENTED = {
    *("_asdict", "_fields", "_make", "_replace"),  # of named tuples
    "_exit",  # of `os`
    *("_get_running_loop", "_set_running_loop", "_run"),  # what asyncio has for those who write an event loop
}
"""Names that begin with an underscore and belong to a public interface all the same."""

TAKES_A_NAME = {"attrgetter", "delattr", "getattr", "hasattr", "object", "patch", "setattr"}
"""Functions that are given the name of an attribute, or a path that ends in one, as a string."""


def is_private(name: str) -> bool:
    """Whether a name is private by its form."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


def private_names_of_others(path: Path) -> set[str]:
    """Return the private names of other modules that a file reads, sets, patches, imports or overrides."""
    nodes = tuple(ast.walk(tree_of(path)))
    used = {*_attributes(nodes), *_strings(nodes)} - _defined_by(nodes)
    return {*used, *_imported(path), *_overridden(path)}


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and _called(node) in TAKES_A_NAME:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield from (part for text in texts for part in text.split(".") if is_private(part))


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _imported(path: Path) -> Iterator[str]:
    for module, name in imported_names(path):
        yield from (part for part in (*module.split("."), name or "") if is_private(part))


def _defined_by(nodes: Iterable[ast.AST]) -> set[str]:
    """The private names that these nodes define, which are all of a module or of a class."""
    found = set()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
    return {name for name in found if is_private(name)}


def _overridden(path: Path) -> Iterator[str]:
    """The private names that a class here defines, and one of its base classes in another module too."""
    origins = {name: module for module, name in imported_names(path) if name}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef):
            for base in _base_names(node):
                if base in origins:
                    yield from _defined_by(ast.walk(node)) & private_names_of_class(origins[base], base)


def _base_names(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def private_names_of_class(module: str, name: str) -> set[str]:
    """Return the private names that a class and its bases define, as far as they belong to the project. The class may
    be imported by the module that it is asked of."""
    path = file_of(module)
    if path is None:
        return set()
    stub = path.with_suffix(".pyi")  # it says where names are that a package resolves on first use
    origins = {name: module for module, name in imported_names(stub if stub.exists() else path) if name}
    own = {node.name: node for node in tree_of(path).body if isinstance(node, ast.ClassDef)}
    if name in own:
        return _defined_by(ast.walk(own[name])).union(
            *(private_names_of_class(module, base) for base in _base_names(own[name]))
        )
    return private_names_of_class(origins[name], name) if name in origins else set()
