"""Writes the table of updates in docs/host.md.

The meaning of an update is written once, in the docstring of its class.
"""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any, get_args

from turnwise import Update
from turnwise.engine.turns import data_fields


def updates() -> str:
    """Return the table of all updates: type, class, fields, and meaning."""
    rows = ["| type | class | fields | what it shows |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *map(_row, get_args(Update))]) + "\n"


def _row(kind: Any) -> str:
    names = [f"`{name}`" if field.default is MISSING else f"[`{name}`]" for name, field in data_fields(kind).items()]
    return f"| `{kind.type}` | `{kind.__name__}` | {', '.join(names)} | {' '.join(kind.__doc__.split())} |"
