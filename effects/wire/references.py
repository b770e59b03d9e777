"""Brings the references of a schema into the one form that everybody reads: `#/$defs/Name`.

A schema may refer to any part of itself: by a path, by an anchor, by an address. Providers follow references into
`$defs` at the top, and often no others, and a path into the properties would break when these are rewritten.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from .subschemas import Schema, mapped, resolve, subschemas

_COMMON = re.compile(r"#|#/\$defs/[A-Za-z0-9_.-]+")
"""References that are sent as they are."""

_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")

_DEFINITIONS = ("$defs", "definitions")

_ADDRESSES = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment")
"""Keywords that say nothing about a value, once no reference needs them."""


def with_common_references(schema: Schema) -> Schema:
    """The schema with all that it refers to in `$defs` at its top, each under a name of its own. A reference that leads
    nowhere permits every value. `Pure.`"""
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
