"""Writes the table of docs/reference/updates.md.

The meaning of an update is written once, in the docstring of its class.
"""

from __future__ import annotations

from typing import Any, get_args

from turnwise import Update, update_schema

SCHEMAS: dict[str, Any] = update_schema()["$defs"]


def updates() -> str:
    """Return the table of all updates: type, class, fields, and meaning."""
    rows = ["| type | class | fields | what it shows |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *map(_row, get_args(Update))]) + "\n"


def _row(kind: Any) -> str:
    data = SCHEMAS[kind.__name__]["properties"]["data"]
    data = SCHEMAS[data["$ref"].rpartition("/")[2]] if "$ref" in data else data
    names = [f"`{name}`" if name in data["required"] else f"[`{name}`]" for name in data["properties"]]
    return f"| `{kind.type}` | `{kind.__name__}` | {', '.join(names)} | {' '.join(kind.__doc__.split())} |"
