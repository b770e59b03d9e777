"""Walks over the schemas that a JSON schema is made of, and brings its references into one form.

A schema holds others under some of its keywords: one, a list of them, or several by name. Everything that reads or
rewrites a schema needs to know which keywords these are, so they stand here, once.
"""

from __future__ import annotations

import re
from collections import defaultdict
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

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""Keywords that name another schema, which describes the same value."""

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


class References:
    """What references within a schema may mean: parts that are named by a path, an anchor or an address.

    An address counts by its last part. So a reference may seem to have several meanings, but it never has another one.
    """

    def __init__(self, root: Schema) -> None:
        self._anchored: dict[str, list[Schema]] = defaultdict(list)
        self._addressed: dict[str, list[Schema]] = defaultdict(list)
        self._whole = [root]  # what has an address, so that paths begin there
        for one in subschemas(root):
            addresses = [one[keyword] for keyword in ("$id", "id") if isinstance(one.get(keyword), str)]
            for address in addresses:
                self._addressed[_name_in(address)].append(one)
            if addresses and one is not root:
                self._whole.append(one)
            for anchor in (*_anchors_of(one), *(address[1:] for address in addresses if address.startswith("#"))):
                self._anchored[anchor].append(one)

    def meant_by(self, reference: str) -> Iterator[Any]:
        """Yield the schemas that this reference may mean, none for one that leads out of the schema. `Pure.`"""
        address, _, fragment = reference.partition("#")
        whole = self._addressed.get(_name_in(address), []) if address else self._whole
        if not fragment:
            yield from whole
        elif fragment.startswith("/"):
            yield from (found for one in whole if (found := resolve(one, f"#{fragment}")) is not None)
        else:
            yield from self._anchored.get(fragment, ())


def _name_in(address: str) -> str:
    return unquote(address.partition("#")[0].rpartition("/")[2]).casefold()


def _anchors_of(schema: Schema) -> Iterator[str]:
    return (schema[mark] for mark in ("$anchor", "$dynamicAnchor") if isinstance(schema.get(mark), str))


def described_in(value: dict[str, Any] | list[Any], schema: Schema) -> Iterator[tuple[Any, Any]]:
    """Yield each member of an object, or item of an array, with what the schema says of it. `Pure.`"""
    if isinstance(value, dict):
        known, others = schema.get("properties"), schema.get("additionalProperties")
        known = known if isinstance(known, dict) else {}
        others = None if "patternProperties" in schema else others
        yield from ((member, known.get(name, others)) for name, member in value.items())
        return
    first, rest = schema.get("prefixItems"), schema.get("items")
    if isinstance(rest, list):  # as drafts before 2020-12 describe the first items
        first, rest = rest, schema.get("additionalItems")
    first = first if isinstance(first, list) else []
    yield from zip(value, [*first[: len(value)], *[rest] * (len(value) - len(first))], strict=True)


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
    if any(keyword in schema for keyword in ("definitions", *REFERENCES[1:])) or (
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
        self._references = References(schema)
        self._names: dict[str, str] = {}
        self._definitions: Schema = {}

    def hoisted(self) -> Schema:
        """Return the schema with common references."""
        rewritten = mapped(self._schema, self._rewrite)
        return {**rewritten, "$defs": self._definitions} if self._definitions else rewritten

    def _rewrite(self, schema: Schema) -> Schema:
        plain = {keyword: value for keyword, value in schema.items() if keyword not in (*_DEFINITIONS, *REFERENCES)}
        references = [schema[keyword] for keyword in REFERENCES if isinstance(schema.get(keyword), str)]
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
        return next(self._references.meant_by(reference), None)

    def _new_name(self, reference: str) -> str:
        wanted = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rsplit("/", 1)[-1]).strip("_")[:50] or "part"
        candidates = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
        return next(name for name in candidates if name not in self._names.values())
