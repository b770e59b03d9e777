"""Writes the tables of docs/reference/rules.md: rules and presets.

The meaning of a rule is written once, below its field in `policy`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from turnwise.states import policy, presets
from turnwise.states.policy import Policy, Texts
from turnwise.states.values.value import Value

from .field_texts import field_texts, in_a_line

UNLISTED = (Texts,)
"""The texts of the machine are too long for a table."""


def rules() -> str:
    """Return the table of all rules: name, default, other choices where they can be listed, and meaning."""
    rows = ["| rule | by default | or | what it is |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *_rows(Policy)]) + "\n"


def sets_of_rules() -> str:
    """Return the table of all presets: what each is for, and which rules it changes."""
    rows = ["| preset | for | the rules that it changes |", "| --- | --- | --- |"]
    for preset in filter(inspect.isfunction, vars(presets).values()):
        meant = in_a_line((preset.__doc__ or "").partition("\n\n")[0]).removesuffix(" `Pure.`")
        changed = ", ".join(f"`{one}`" for one in _changed(preset())) or "none"
        rows.append(f"| `{preset.__name__}()` | {meant} | {changed} |")
    return "\n".join(rows) + "\n"


# --- rules


def _rows(kind: type[Value], before: str = "") -> Iterator[str]:
    """One row for each field, and behind it the fields of the values that it may hold."""
    meant = field_texts(kind)
    for name, field in kind.model_fields.items():
        parts = [part for part in _parts(field.annotation) if _has_rows(part)]
        default = "" if field.is_required() else f"`{_written(field.default)}`"
        others = [f"`{_written(other)}`" for other in _choices(field.annotation) if other != field.default]
        others += [f"`{part.__name__}(…)`" for part in parts if isinstance(field.default, str)]
        yield f"| `{before}{name}` | {default} | {', '.join(others)} | {meant[name]} |"
        for part in parts:
            yield from _rows(part, f"{part.__name__}.")


def _has_rows(part: Any) -> bool:
    """Whether this part of an annotation is a class of rules."""
    return getattr(part, "__module__", "") == policy.__name__ and inspect.isclass(part) and part not in UNLISTED


def _parts(annotation: Any) -> Iterator[Any]:
    """The types and literal values in an annotation."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for argument in inner:
        yield from _parts(argument)


def _choices(annotation: Any) -> Iterator[object]:
    """The values that can be listed: those of literals and of booleans."""
    for part in _parts(annotation):
        if part is bool:
            yield from (True, False)
        elif isinstance(part, str):
            yield part


# --- sets of rules


def _changed(value: Value) -> Iterator[str]:
    """The fields that differ from their default, as a program would write them."""
    for name, field in type(value).model_fields.items():
        if getattr(value, name) != field.default:
            yield f"{name}={_written(getattr(value, name))}"


def _written(value: object) -> str:
    """A value as a program would write it."""
    if isinstance(value, Value):
        return f"{type(value).__name__}({', '.join(_changed(value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    return f'"{value}"' if isinstance(value, str) else str(value)
