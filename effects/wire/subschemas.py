"""Walks over the schemas that a JSON schema is made of, and brings its references into one form.

A schema holds others under some of its keywords: one, a list of them, or several by name. Everything that reads or
rewrites a schema needs to know which keywords these are, so they stand here, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
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

_COMBINING = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")
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
        for keyword in _COMBINING:
            value = one.get(keyword)
            waiting += value if isinstance(value, list) else [value]


_COMMON = re.compile(r"#|#/\$defs/[A-Za-z0-9_.-]+")
"""References that are sent as they are."""

_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")

_DEFINITIONS = ("$defs", "definitions")

_ADDRESSES = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment")
"""Keywords that say nothing about a value, once no reference needs them."""


def with_common_references(schema: Schema) -> Schema:
    """The schema with all that it refers to in `$defs` at its top, each under a name of its own. A reference that leads
    nowhere permits every value.

    That is the one form that everybody reads: `#/$defs/Name`. A schema may refer to any part of itself: by a path, by
    an anchor, by an address. Providers follow references into `$defs` at the top, and often no others, and a path
    into the properties would break when these are rewritten. `Pure.`
    """
    is_common = all(_has_common_reference(schema, one) for one in subschemas(schema))
    written: Schema = mapped(schema if is_common else _Hoisting(schema).hoisted(), _without_addresses)
    return written


def _has_common_reference(root: Schema, schema: Schema) -> bool:
    """Whether a schema in `root` refers to nothing, or as everybody reads it, and defines nothing elsewhere."""
    if any(keyword in schema for keyword in ("definitions", *_KEYWORDS[1:])) or (
        "$defs" in schema and schema is not root
    ):
        return False
    reference = schema.get("$ref", "#")
    return isinstance(reference, str) and bool(_COMMON.fullmatch(reference)) and resolve(root, reference) is not None


def _without_addresses(schema: Schema) -> Schema:
    if not any(keyword in schema for keyword in _ADDRESSES):
        return schema
    return {keyword: value for keyword, value in schema.items() if keyword not in _ADDRESSES}


class _Hoisting:
    """A schema whose parts become definitions at its top."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._names: dict[str, str] = {}
        self._definitions: Schema = {}

    def hoisted(self) -> Schema:
        """Return the schema with common references."""
        rewritten = mapped(self._schema, self._rewrite)
        return {**rewritten, "$defs": self._definitions} if self._definitions else rewritten

    def _rewrite(self, schema: Schema) -> Schema:
        plain = {keyword: value for keyword, value in schema.items() if keyword not in (*_DEFINITIONS, *_KEYWORDS)}
        references = [schema[keyword] for keyword in _KEYWORDS if isinstance(schema.get(keyword), str)]
        if not references:
            return plain if len(plain) < len(schema) else schema
        reference = references[0] if references[0] == "#" else self._reference_to(references[0])
        return {"$ref": reference, **plain} if reference else plain

    def _reference_to(self, reference: str) -> str:
        """The reference to the definition that this one means; empty if it leads nowhere."""
        if reference not in self._names:
            target = self._target_of(reference)
            if target is None:
                return ""
            name = self._names[reference] = self._new_name(reference)
            self._definitions[name] = mapped(target, self._rewrite)
        return f"#/$defs/{self._names[reference]}"

    def _target_of(self, reference: str) -> Any:
        found = resolve(self._schema, reference)
        if found is not None:
            return found
        return next((one for one in subschemas(self._schema) if reference in _addresses_of(one)), None)

    def _new_name(self, reference: str) -> str:
        wanted = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rsplit("/", 1)[-1]).strip("_")[:50] or "part"
        candidates = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
        return next(name for name in candidates if name not in self._names.values())


def _addresses_of(schema: Schema) -> tuple[object, ...]:
    return schema.get("$id"), *(f"#{schema[mark]}" for mark in ("$anchor", "$dynamicAnchor") if mark in schema)
