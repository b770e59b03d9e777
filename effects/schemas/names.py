"""Names of properties that every provider accepts, and the way back from them.

Some providers refuse a request in which a property of a tool has a name with a space or a `$`, or a long one. Such a
property has another name on the wire. The model calls it so, and the arguments of a call get the names of the schema
again, before anybody looks at them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json

from .subschemas import Schema, mapped, subschemas, views

_LEGAL = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_MAX_QUOTED = 200
"""The most characters of a name that is told in a description."""


def renamed_properties(schema: Schema) -> dict[str, str]:
    """The names on the wire of those properties, anywhere in the schema, whose own names some provider refuses. No two
    properties of the schema have one name. `Pure.`"""
    names = {name: None for one in subschemas(schema) for name in _names_in(one)}
    illegal = [name for name in names if not _LEGAL.fullmatch(name)]
    taken = {name.lower() for name in names}
    renamed: dict[str, str] = {}
    for name in illegal:
        renamed[name] = _legal(name, taken)
        taken.add(renamed[name].lower())
    return renamed


def _names_in(schema: Schema) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    yield from properties if isinstance(properties, dict) else ()
    yield from (name for name in required if isinstance(name, str)) if isinstance(required, list) else ()


def _legal(name: str, taken: set[str]) -> str:
    wanted = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name).strip("_")
    if wanted and len(wanted) <= 64 and wanted.lower() not in taken:
        return wanted
    fingerprint = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{wanted[:55] or 'property'}_{fingerprint}"


def with_names(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema with these names of properties; the description of each tells its own name. `Pure.`"""
    if not names:
        return schema

    def rename(one: Schema) -> Schema:
        changed: Schema = {}
        if isinstance(properties := one.get("properties"), dict):
            changed["properties"] = {
                names.get(name, name): _telling(part, name, names) for name, part in properties.items()
            }
        if isinstance(required := one.get("required"), list):
            changed["required"] = [names.get(name, name) for name in required]
        if isinstance(dependent := one.get("dependentRequired"), dict):
            changed["dependentRequired"] = {
                names.get(name, name): [names.get(each, each) for each in listed] for name, listed in dependent.items()
            }
        return {**one, **changed} if changed else one

    renamed: Schema = mapped(schema, rename)
    return renamed


def _telling(schema: Any, name: str, names: Mapping[str, str]) -> Any:
    if name not in names or not isinstance(schema, dict):
        return schema
    described = f"({name[:_MAX_QUOTED]}) {schema.get('description', '')}".rstrip()
    return {**schema, "description": described}


def property_names_of(schema: Schema) -> PropertyNames | None:
    """The way back from the names that the properties of this schema have on the wire; None if they are their own.
    `Pure.`"""
    names = renamed_properties(schema)
    return PropertyNames(schema, names) if names else None


class PropertyNames:
    """The way back from the names on the wire, for the arguments of one tool, whose schema this is."""

    def __init__(self, schema: Schema, names: Mapping[str, str]) -> None:
        self._schema = schema
        self._own = {sent: name for name, sent in names.items()}

    def restored(self, arguments: str) -> str:
        """The arguments of a call, JSON text, with the properties' own names. A text that is no JSON object, or has
        none of the other names, is returned as it is. `Pure.`"""
        try:
            given = from_json(arguments)
        except ValueError:
            return arguments
        own = self._with_own_names(given, [self._schema])
        return arguments if own is given else json.dumps(own, ensure_ascii=False)

    def _with_own_names(self, value: Any, schemas: list[Any]) -> Any:
        """The value, which these schemas describe. What does not change stays the same object."""
        if isinstance(value, list):
            items = [
                self._with_own_names(one, _schemas_of_item(self._seen(schemas), index))
                for index, one in enumerate(value)
            ]
            return items if any(new is not one for new, one in zip(items, value, strict=True)) else value
        if not isinstance(value, dict):
            return value
        seen = self._seen(schemas)
        declared = {name for one in seen for name in _names_in(one)}
        own: dict[str, Any] = {}
        for key, one in value.items():
            name = self._own.get(key, key)
            name = name if name in declared and name not in value else key
            own[name] = self._with_own_names(one, _schemas_of_property(seen, name))
        is_same = all(key in own and own[key] is one for key, one in value.items())
        return value if is_same else own

    def _seen(self, schemas: list[Any]) -> list[Schema]:
        return [view for one in schemas for view in views(self._schema, one)]


def _schemas_of_property(schemas: list[Schema], name: str) -> list[Any]:
    declared = [one["properties"][name] for one in schemas if name in (one.get("properties") or ())]
    return declared or [one["additionalProperties"] for one in schemas if "additionalProperties" in one]


def _schemas_of_item(schemas: list[Schema], index: int) -> list[Any]:
    first = [one["prefixItems"][index] for one in schemas if index < len(one.get("prefixItems") or ())]
    listed = [one["items"] for one in schemas if "items" in one]
    placed = [one[index] for one in listed if isinstance(one, list) and index < len(one)]
    return [*first, *placed, *(one for one in listed if isinstance(one, dict))]
