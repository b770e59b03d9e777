"""Writes the schema of a tool's arguments as one object, with nothing combined at its top.

Most providers want `{"type": "object", "properties": …}` there and refuse `oneOf`, `anyOf`, `allOf` and the like, which
they take anywhere below. So what is combined is merged: all properties of all alternatives, of which those are required
that each alternative requires. That permits more than the schema does. A text says what belongs together, and a call is
still checked against the schema itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from .subschemas import Schema, resolve, types_of

MERGED = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "not")
"""Keywords that do not stand at the top."""

_WRITTEN = ("type", "properties", "required", "description")

_ALTERNATIVES = ("anyOf", "oneOf")

_MAX_HINT = 1_000
"""The most characters of the text that says what belongs together."""


@dataclass(frozen=True)
class _Object:
    """What a schema says of an object: its properties, and which of them are required."""

    properties: Schema = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def and_also(self, other: _Object) -> _Object:
        """What holds if both hold."""
        return _Object(
            _joined(self.properties, other.properties, "allOf"), tuple(dict.fromkeys(self.required + other.required))
        )

    def or_else(self, other: _Object) -> _Object:
        """What holds if one of them holds, or less."""
        required = tuple(name for name in self.required if name in other.required)
        return _Object(_joined(self.properties, other.properties, "anyOf"), required)


def with_object_at_top(schema: Schema) -> Schema:
    """The schema as an object with properties, without the keywords `MERGED`. A schema that is so already is returned
    as it is. `Pure.`"""
    is_plain = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if is_plain and not any(keyword in schema for keyword in MERGED):
        return schema
    objects = _Objects(schema)
    merged = objects.said_by(schema)
    # What an object has that is closed stands beside that word, whatever its alternatives say.
    is_closed, own = schema.get("additionalProperties") is False, schema.get("properties", {})
    required = [name for name in merged.required if name in own or not is_closed]
    text = "\n\n".join(filter(None, (str(schema.get("description", "")), _hint(objects))))
    return {
        "type": "object",
        "properties": {name: one for name, one in merged.properties.items() if name in own or not is_closed},
        **({"required": required} if required else {}),
        **({"description": text} if text else {}),
        **{keyword: one for keyword, one in schema.items() if keyword not in (*MERGED, *_WRITTEN)},
    }


class _Objects:
    """What the schemas in `root` say of an object, each found out once however many ways lead to it."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._known: dict[int, _Object] = {}

    def said_by(self, schema: Any) -> _Object:
        """What a schema says. One that stands in itself adds nothing there."""
        if not isinstance(schema, dict):
            return _Object()
        if id(schema) not in self._known:
            self._known[id(schema)] = _Object()
            self._known[id(schema)] = self._find(schema)
        return self._known[id(schema)]

    def _find(self, schema: Schema) -> _Object:
        properties = schema.get("properties", {})
        said = _Object(properties if isinstance(properties, dict) else {}, tuple(schema.get("required", ())))
        parts = [*schema.get("allOf", ()), resolve(self.root, schema.get("$ref"))]
        said = reduce(_Object.and_also, map(self.said_by, parts), said)
        for alternatives in _alternatives(self.root, schema):
            said = said.and_also(reduce(_Object.or_else, map(self.said_by, alternatives)))
        return said


def _alternatives(root: Schema, schema: Schema) -> Iterator[list[Any]]:
    """Yield the alternatives of a schema that an object can be, for each keyword that has some."""
    for keyword in _ALTERNATIVES:
        found = [one for one in schema.get(keyword, ()) if _may_be_object(root, one)]
        if found:
            yield found


def _may_be_object(root: Schema, schema: Any) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    target = resolve(root, schema.get("$ref"))
    types = types_of(schema) or (types_of(target) if isinstance(target, dict) else ())
    return not types or "object" in types


def _joined(first: Schema, second: Schema, keyword: str) -> Schema:
    """The properties of both; one that both have is described by this combination."""
    both = {name: _combined(first[name], second[name], keyword) for name in first if name in second}
    return {**first, **second, **both}


def _combined(first: Any, second: Any, keyword: str) -> Any:
    if first == second:
        return first
    empty = [one for one in (first, second) if one is True or one == {}]
    if empty:
        return (second if empty[0] is first else first) if keyword == "allOf" else {}
    if keyword == "anyOf" and (values := _values_of(first, second)):
        return {"type": first.get("type", "string"), "enum": values}
    parts = [*_parts_of(first, keyword), *_parts_of(second, keyword)]
    return {keyword: [one for index, one in enumerate(parts) if one not in parts[:index]]}


def _values_of(*schemas: Any) -> list[Any]:
    """The texts that one of these schemas permits, if each permits only texts, of a kind that marks an alternative."""
    values: list[Any] = []
    for schema in schemas:
        if not isinstance(schema, dict) or schema.keys() - {"type", "const", "enum"}:
            return []
        own = schema.get("enum", [schema["const"]] if "const" in schema else [])
        if not own or not all(isinstance(one, str) for one in own):
            return []
        values += (one for one in own if one not in values)
    return values


def _parts_of(schema: Any, keyword: str) -> list[Any]:
    is_combination = isinstance(schema, dict) and schema.keys() == {keyword}
    return schema[keyword] if is_combination else [schema]


def _hint(objects: _Objects) -> str:
    """The text that says what belongs together; empty if there are no alternatives that differ."""
    for alternatives in _alternatives(objects.root, objects.root):
        groups = [_names_of(objects.said_by(one)) for one in alternatives]
        if len(set(groups)) > 1:
            written = "; or ".join(", ".join(group) or "none of them" for group in dict.fromkeys(groups))
            return f"Give these together: {written}."[:_MAX_HINT]
    return ""


def _names_of(said: _Object) -> tuple[str, ...]:
    return said.required or tuple(said.properties)
