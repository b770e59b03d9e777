"""A tool's schema in the form that every provider accepts: a copy for the wire.

Each provider refuses schemas that others take, and it refuses the whole request, so that one schema would fail every
turn. The rules here are those of the strictest. They change how a schema is written and not what it means, except at
its top, where providers take less than what schemas can say; a call is checked against the schema itself in any case.
A schema that follows all rules is sent as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .object_at_top import with_object_at_top
from .property_names import renamed_properties, with_names
from .references import with_common_references
from .repairs import with_repairs
from .subschemas import Schema, is_one_of, mapped, resolve, types_of

_SAYS_MORE = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const")
"""Keywords beside which a schema needs no type: they say what the value is."""

_SAYS_PROPERTIES = ("properties", "additionalProperties", "patternProperties", *_SAYS_MORE)

_OF_OBJECTS = ("properties", "required", "additionalProperties")
_OF_ARRAYS = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems")

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
}


def wire_schema(schema: Schema) -> Schema:
    """The schema as it is sent. `Pure.`"""
    names = renamed_properties(schema)
    written = with_object_at_top(with_common_references(with_repairs(schema)))
    return with_names(mapped(written, _follow_rules), names)


def _follow_rules(schema: Schema) -> Schema:
    for rule in _RULES:
        schema = rule(schema)
    return schema


def _no_booleans(schema: Schema) -> Schema:
    """A schema is an object: `{}` permits every value, and a property that permits none is not there."""
    changed: Schema = {}
    if isinstance(properties := schema.get("properties"), dict) and any(
        isinstance(one, bool) for one in properties.values()
    ):
        required = schema.get("required", ())
        kept = {name: one for name, one in properties.items() if one is not False or name in required}
        changed["properties"] = {name: _as_object(one) for name, one in kept.items()}
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if any(isinstance(one, bool) for one in schema.get(keyword, ())):
            changed[keyword] = [_as_object(one) for one in schema[keyword]]
    return {**schema, **changed} if changed else schema


def _as_object(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _items(schema: Schema) -> Schema:
    """An array says what its items are. One that ends behind its first items has a length instead."""
    if schema.get("items") is False:
        return {**schema, "items": {}, "maxItems": len(schema.get("prefixItems", ()))}
    is_array = "array" in types_of(schema)
    return {**schema, "items": {}} if schema.get("items") is True or (is_array and "items" not in schema) else schema


def _properties(schema: Schema) -> Schema:
    """An object says what its properties are."""
    if "object" not in types_of(schema) or any(keyword in schema for keyword in _SAYS_PROPERTIES):
        return schema
    return {**schema, "properties": {}}


def _requirements(schema: Schema) -> Schema:
    """What is required is one of the properties."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not required or any(keyword in schema for keyword in _SAYS_MORE):
        return schema
    missing: Schema = {name: {} for name in required if name not in properties}
    return {**schema, "properties": {**properties, **missing}} if missing else schema


def _type(schema: Schema) -> Schema:
    """The type is said, where it follows from the other keywords."""
    if "type" in schema:
        return schema
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        types = {_JSON_TYPES.get(type(value)) for value in values}
        name = types.pop() if len(types) == 1 else None
        return {"type": name, **schema} if name else schema
    if any(keyword in schema for keyword in _SAYS_MORE):
        return schema
    if any(keyword in schema for keyword in _OF_OBJECTS):
        return {"type": "object", **schema}
    return {"type": "array", **schema} if any(keyword in schema for keyword in _OF_ARRAYS) else schema


def _distinct(schema: Schema) -> Schema:
    """Permitted values are listed once."""
    values = schema.get("enum", [])
    distinct = (
        [one for index, one in enumerate(values) if not is_one_of(one, values[:index])] if len(values) < 500 else values
    )
    return schema if len(distinct) == len(values) else {**schema, "enum": distinct}


_RULES: tuple[Callable[[Schema], Schema], ...] = (_no_booleans, _type, _items, _properties, _requirements, _distinct)
"""The rules for each schema, in this order. Each returns the same object if there is nothing to change."""


# --- where even that is refused

_PLAIN = ("type", "description", "properties", "required", "items", "enum", "anyOf", "additionalProperties")
"""What every implementation of schemas knows."""

_DEEPEST = 12
"""How many levels of references are written out. A schema that refers to itself ends there."""


def plain_schema(schema: Schema) -> Schema:
    """The schema in the words that every implementation knows: types, properties, items, texts that are permitted. What
    it refers to is written out. It permits more than the schema does. `Pure.`"""
    return _plain(schema, schema, ())


def _plain(root: Schema, schema: Any, above: tuple[str, ...]) -> Schema:
    if not isinstance(schema, dict):
        return {}
    reference = schema.get("$ref")
    if reference is not None:
        target = resolve(root, reference)
        if reference in above or len(above) == _DEEPEST or not isinstance(target, dict):
            return {"type": "object", "properties": {}}
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        return _plain(root, {**target, **beside}, (*above, reference))
    merged = {
        **schema,
        **{key: value for part in schema.get("allOf", ()) if isinstance(part, dict) for key, value in part.items()},
    }
    plain = {keyword: merged[keyword] for keyword in _PLAIN if keyword in merged}
    if "const" in merged:
        plain["enum"] = [merged["const"]]
    alternatives = merged.get("anyOf", merged.get("oneOf"))
    return _with_plain_parts(root, _with_one_type(plain, alternatives), above)


def _with_one_type(schema: Schema, alternatives: Any) -> Schema:
    """The schema with one type at most: the first that is not null. Alternatives of which one is not null are that."""
    types = [one for one in types_of(schema) if one != "null"]
    rest = {keyword: value for keyword, value in schema.items() if keyword not in ("type", "anyOf")}
    typed = {"type": types[0], **rest} if types else rest
    if not isinstance(alternatives, list):
        return typed
    real = [one for one in alternatives if isinstance(one, dict) and types_of(one) != ("null",)]
    return {**real[0], **typed} if len(real) == 1 else {**typed, "anyOf": real} if real else typed


def _with_plain_parts(root: Schema, schema: Schema, above: tuple[str, ...]) -> Schema:
    if "$ref" in schema:  # the only alternative refers to it
        return _plain(root, schema, above)
    changed: Schema = {}
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            changed[keyword] = {name: _plain(root, one, above) for name, one in value.items()}
        elif keyword == "anyOf":
            changed[keyword] = [_plain(root, one, above) for one in value]
        elif keyword == "items" or (keyword == "additionalProperties" and isinstance(value, dict)):
            changed[keyword] = _plain(root, value, above)
    values = schema.get("enum", [])
    known = {key: value for key, value in schema.items() if key in _PLAIN and (key != "enum" or _are_texts(values))}
    return {**known, **changed}


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(one, str) for one in values)
