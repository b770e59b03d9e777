"""Walks over the schemas that a JSON schema is made of.

A schema holds others under some of its keywords: one, a list of them, or several by name. Everything that reads or
rewrites a schema needs to know which keywords these are, so they stand here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]
"""A JSON schema that is an object; true and false are schemas, too."""

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords with several schemas by name."""

IN_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords with a list of schemas."""

ONE = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
"""Keywords with one schema. In older dialects `items` may have a list."""

COMBINING = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")
"""Keywords whose schemas describe the same value as the schema in which they stand."""


def mapped(schema: Any, rewrite: Callable[[Schema], Any]) -> Any:
    """The schema with `rewrite` applied to each schema in it that is an object, the innermost first, and to itself.

    What does not change stays the same object. `Pure.`
    """
    if not isinstance(schema, dict):
        return schema
    changed: Schema = {}
    for keyword, value in schema.items():
        new = _mapped_value(keyword, value, rewrite)
        if new is not value:
            changed[keyword] = new
    return rewrite({**schema, **changed} if changed else schema)


def _mapped_value(keyword: str, value: Any, rewrite: Callable[[Schema], Any]) -> Any:
    if keyword in BY_NAME and isinstance(value, dict):
        by_name = {name: mapped(one, rewrite) for name, one in value.items()}
        return by_name if any(by_name[name] is not one for name, one in value.items()) else value
    if (keyword in IN_LIST or keyword == "items") and isinstance(value, list):
        listed = [mapped(one, rewrite) for one in value]
        return listed if any(new is not one for new, one in zip(listed, value, strict=True)) else value
    return mapped(value, rewrite) if keyword in ONE else value


def subschemas(schema: Any) -> Iterator[Schema]:
    """Yield this schema and each schema in it, those that are objects. `Pure.`"""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        yield one
        for keyword, value in one.items():
            if keyword in BY_NAME and isinstance(value, dict):
                waiting += value.values()
            elif keyword in IN_LIST or keyword in ONE:
                waiting += value if isinstance(value, list) else [value]


def resolve(root: Schema, reference: object) -> Any:
    """The schema that a reference within `root` means, `#` or a path such as `#/$defs/Name`; None if there is none.
    `Pure.`"""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:] if reference != "#" else ():
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found if reference == "#" or "/" in reference else None


def is_one_of(value: Any, values: Iterable[Any]) -> bool:
    """Whether the value is one of these as JSON has them, where true is no number. `Pure.`"""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types that a schema names. `Pure.`"""
    named = schema.get("type")
    listed = named if isinstance(named, list) else [named]
    return tuple(one for one in listed if isinstance(one, str))


def views(root: Schema, schema: Any) -> Iterator[Schema]:
    """Yield the schemas in `root` that describe the same value as this one: itself, what it refers to, and the
    alternatives and parts that it combines. `Pure.`"""
    waiting, seen = [schema], set[int]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting.append(resolve(root, one.get("$ref")))
        for keyword in COMBINING:
            value = one.get(keyword)
            waiting += value if isinstance(value, list) else [value]
