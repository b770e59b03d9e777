"""Makes of the source what the API pages show of it.

Docstrings are written for people who read the source: programs are indented, names stand in backticks, and pages are
named by their path in the repository. On the site programs are coloured, and names and pages are links. Of a class only
what its users write or read is shown, also where it has that from an abstract class that no page shows. mkdocs.yml
lists this file as an extension of griffe, which reads the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import griffe

PAGES = Path(__file__).parent.parent / "reference" / "api"
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
"""A name that a page shows."""

CODE = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)")
NAME = re.compile(r"(?<![\[`])`([A-Za-z_][\w.]*)(?:\(\))?`(?![\]`])")
PAGE = re.compile(r"docs/([\w/-]+)\.md")
PLACES_OF_ATTRIBUTES = {"class-attribute", "instance-attribute", "module-attribute"}
"""Labels that say where an attribute stands, which its users need not know."""


class ApiPages(griffe.Extension):
    """Changes a package when all of it has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change what the pages show of the package."""
        shown = {path: _shown(pkg, path) for path in _paths()}
        public = {item.canonical_path for item in shown.values()}
        for item in shown.values():
            if item.is_class:
                _take_over(item, public)
        places = {path.rpartition(".")[2]: path for path in shown}
        for path, item in shown.items():
            places |= {f"{path.rpartition('.')[2]}.{name}": f"{path}.{name}" for name in _public(item)}
        for path, item in shown.items():
            own = {name: f"{path}.{name}" for name in _public(item)}
            for documented in [item, *(item.members[name] for name in own)]:
                _change(documented, path, {**places, **own})
            if item.is_class:
                _change_class(item, public)


def _paths() -> Iterator[str]:
    """Yield the paths of all names that a page shows."""
    for page in sorted(PAGES.glob("*.md")):
        yield from SHOWN.findall(page.read_text(encoding="utf-8"))


def _shown(pkg: griffe.Module, path: str) -> Any:
    """Return what a page shows under this path, wherever it is defined."""
    item: Any = pkg[path.removeprefix("turnwise.")]
    return item.final_target if item.is_alias else item


def _public(item: Any) -> list[str]:
    """Return the names of the members that are shown with it."""
    members = item.members.items() if item.is_class or item.is_module else ()
    return [name for name, member in members if not (name.startswith("_") or member.is_alias) and member.docstring]


# --- docstrings


def _change(item: Any, owner: str, places: dict[str, str]) -> None:
    if item.is_attribute:
        is_set_when_made = "instance-attribute" in item.labels and "class-attribute" not in item.labels
        item.value = None if is_set_when_made else _default(item.value)
    item.labels -= PLACES_OF_ATTRIBUTES
    if item.docstring is not None:
        item.docstring.value = changed(item.docstring.value, {name: to for name, to in places.items() if to != owner})


def changed(text: str, places: dict[str, str]) -> str:
    """Return a docstring as Markdown for the site; `places` are the paths of the names that have a place there."""
    parts = CODE.split(f"{text}\n")
    for number, part in enumerate(parts):
        if number % 2:
            program = "".join(line[4:] or "\n" for line in part.rstrip("\n").splitlines(keepends=True))
            parts[number] = f"```python\n{program}\n```\n"
        else:
            parts[number] = PAGE.sub(_linked, NAME.sub(lambda found: _named(found, places), part))
    return "".join(parts).rstrip("\n")


def _named(found: re.Match[str], places: dict[str, str]) -> str:
    name = found[1].removeprefix("turnwise.").removeprefix("testing.").removeprefix("states.")
    return f"[{found[0]}][{places[name]}]" if name in places else found[0]


def _linked(found: re.Match[str]) -> str:
    """Return a link from a page below reference/api/ to another page."""
    title = (PAGES.parent.parent / f"{found[1]}.md").read_text(encoding="utf-8").partition("\n")[0]
    return f"[{title.removeprefix('# ')}](../../../{found[1]}/)"


# --- classes


def _take_over(item: Any, public: set[str]) -> None:
    """Give a class the members that it has from abstract classes that no page shows."""
    for base in item.mro():
        if base.canonical_path not in public and "ABC" in map(str, base.bases):
            for name in [name for name in _public(base) if name not in item.members]:
                member = copy(base.members[name])
                member.docstring = copy(member.docstring)
                item.set_member(name, member)


def _change_class(item: Any, public: set[str]) -> None:
    """Leave out bases and constructors that are not for users, and let a model show its fields."""
    lines = [item, *item.mro()]
    item.bases = [base for base in item.bases if _path(base) in public]
    if any("BaseModel" in str(base) or "TypedDict" in str(base) for one in lines for base in one.bases):
        _show_fields(item, lines)
        return
    made = item.members.get("__init__")
    if made and any(one.required and _is_private(one.annotation, public) for one in made.parameters):
        del item.members["__init__"]


def _is_private(annotation: Any, public: set[str]) -> bool:
    """Whether a type of this package stands in the annotation that no page shows."""
    names = annotation.iterate(flat=True) if isinstance(annotation, griffe.Expr) else ()
    return any(_path(name).startswith("turnwise.") and _path(name) not in public for name in names)


def _path(name: Any) -> str:
    return str(getattr(name, "canonical_path", ""))


def _show_fields(item: Any, lines: list[Any]) -> None:
    """Give a model a constructor with its fields, unless each of them is explained by itself."""
    fields = {name: each for one in reversed(lines) for name, each in one.members.items() if _is_field(each)}
    if all(name in item.members and member.docstring for name, member in fields.items()):
        return
    parameters = [
        griffe.Parameter(
            name, annotation=field.annotation, kind=griffe.ParameterKind.keyword_only, default=_default(field.value)
        )
        for name, field in fields.items()
    ]
    item.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))


def _is_field(member: Any) -> bool:
    """Whether this is an attribute that the caller of the constructor gives."""
    if not member.is_attribute or not member.annotation or "property" in member.labels:
        return False
    return not member.name.startswith("_") and member.name.islower() and member.name != "model_config"


def _default(value: Any) -> Any:
    """Return the default of an attribute. That of a `Field` is among its arguments."""
    if not isinstance(value, griffe.ExprCall):
        return value
    given = {argument.name: argument.value for argument in value.arguments if isinstance(argument, griffe.ExprKeyword)}
    if str(value.function) in ("Field", "field"):
        return given.get("default")
    return value
