"""Reads what stands below the fields of a class.

Python does not keep such texts, so they are read from the source, here only: a program that uses the class does not pay
for it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping


def field_texts(kind: type) -> Mapping[str, str]:
    """Return the texts below the fields of a class, each in one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    said: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                said[name] = in_a_line(text)
            case _:
                pass  # a method, or what stands behind a docstring
    return said


def in_a_line(text: str | None) -> str:
    """Return the text without line breaks."""
    return " ".join((text or "").split())
