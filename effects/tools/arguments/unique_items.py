"""Checks `uniqueItems` in time that grows with the length of the array.

`jsonschema` compares each item with each other one. An array of some thousand objects, which a model may well write,
would stop all conversations of a process for half a minute.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any


@cache
def with_fast_unique_items(dialect: Any) -> Any:
    """The class of validators for the same dialect that checks `uniqueItems` fast."""
    from jsonschema.validators import extend  # type: ignore[import-untyped]  # only for tools with a schema

    return extend(dialect, {"uniqueItems": _unique_items})


def _unique_items(validator: Any, wanted: object, instance: object, schema: object) -> Iterator[Exception]:
    """Yield an error if items are wanted to be unique and two of them are equal: the function of a keyword, as
    `jsonschema` calls it."""
    from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]

    if wanted and isinstance(instance, list) and len({_identity(item) for item in instance}) < len(instance):
        yield ValidationError("The array has equal items.")


def _identity(value: Any) -> Hashable:
    """What two JSON values share if, and only if, they are equal: 1 is 1.0, but not true. `Pure.`"""
    if isinstance(value, dict):
        return dict, frozenset((name, _identity(part)) for name, part in value.items())
    if isinstance(value, list):
        return list, tuple(map(_identity, value))
    return isinstance(value, bool), value
