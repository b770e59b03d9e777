"""Strict schemas: those to which a provider can hold what a model writes, token by token.

OpenAI and those who follow it take only a part of what schemas can say, and want every object to be closed and to have
all its fields. So an argument that may be left out is required in the strict form, and may be null instead. The default
that holds then is told in its description, since a strict schema has no place for it.
"""

from __future__ import annotations

import json
from typing import Any

from ...states.values.value import MAX_QUOTED, shortened
from .subschemas import Schema, mapped, resolve, subschemas, types_of, views

_OF_STRICT = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "enum", "const", "$ref"}
    | {"$defs", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "multipleOf"}
    | {"exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "default"}
)
"""The keywords that strict schemas may have (OpenAI, "Structured outputs: supported schemas"). A default is left out:
each field is written."""

_SAYS_WHAT = ("$ref", "anyOf", "enum", "const")
"""Keywords beside which a schema needs no type."""

_NULL: Schema = {"type": "null"}


def strict_schema(schema: Schema) -> Schema | None:
    """The schema with all fields required and no others permitted, as strict schemas are; None if it says something
    that such a schema cannot say. `Pure.`"""
    if not all(one.keys() <= _OF_STRICT and _may_be_closed(one) for one in subschemas(schema)):
        return None
    strict: Schema = mapped(schema, _closed)
    return strict


def strict_arguments(schema: Schema, sent: Schema) -> Schema | None:
    """The strict form of the `schema` of a tool's arguments, made of the form in which it is `sent` otherwise: null
    stands for an argument that is not given. None if it cannot be written so, as a schema with alternatives at its top:
    the form that is sent has the arguments of all of them, of which some may not even be null. `Pure.`"""
    if any("anyOf" in one or "oneOf" in one for one in views(schema, schema)):
        return None
    return strict_schema(mapped(sent, lambda one: _with_nulls(one, sent)))


def _may_be_closed(schema: Schema) -> bool:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    is_object = "object" in types_of(schema) or properties is not None
    if is_object + ("$ref" in schema) + ("anyOf" in schema) > 1:
        return False  # each of them would have to permit what the others require
    if is_object and not properties and others is not False:
        return False  # an object of any content
    is_described = "type" in schema or any(word in schema for word in _SAYS_WHAT)
    is_complete = {*schema.get("required", ())} <= {*(properties or ())}
    return is_described and is_complete and others in (None, False)


def _closed(schema: Schema) -> Schema:
    changed = {keyword: value for keyword, value in schema.items() if keyword != "default"}
    if "$ref" in changed:
        return {"$ref": changed["$ref"]}
    if "object" in types_of(changed) or "properties" in changed:
        properties = changed.get("properties", {})
        changed |= {"properties": properties, "required": [*properties], "additionalProperties": False}
    return changed if changed != schema else schema


def _with_nulls(schema: Schema, root: Schema) -> Schema:
    """The schema with null for each field that may be left out."""
    properties, required = schema.get("properties"), schema.get("required") or ()
    if not isinstance(properties, dict) or all(name in required for name in properties):
        return schema
    nullable = {name: one if name in required else _or_null(one, root) for name, one in properties.items()}
    return {**schema, "properties": nullable}


def _or_null(schema: Any, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    if _takes_null(schema, root):
        return schema
    inner = {keyword: value for keyword, value in schema.items() if keyword not in ("description", "default")}
    told = _description(schema)
    described = {"description": told} if told else {}
    if inner.keys() <= {"anyOf", "title"}:
        return {**inner, **described, "anyOf": [*inner["anyOf"], _NULL]}
    return {**described, "anyOf": [inner, _NULL]}


def _description(schema: Schema) -> str:
    """The description of a field, with the default that holds if the field is null."""
    said = str(schema.get("description") or "")
    if schema.get("default") is None:
        return said
    default = shortened(json.dumps(schema["default"], ensure_ascii=False), MAX_QUOTED)
    return f"{said} (null: {default})".lstrip()


def _takes_null(schema: Any, root: Schema, seen: tuple[int, ...] = ()) -> bool:
    """Whether null is a value of this schema, of which nothing is known but the keywords of strict schemas."""
    if not isinstance(schema, dict) or id(schema) in seen:
        return schema is not False
    further = (*seen, id(schema))
    if "type" in schema and "null" not in types_of(schema):
        return False
    if "const" in schema and schema["const"] is not None:
        return False
    if "enum" in schema and None not in schema["enum"]:
        return False
    if "anyOf" in schema and not any(_takes_null(one, root, further) for one in schema["anyOf"]):
        return False
    return "$ref" not in schema or _takes_null(resolve(root, schema["$ref"]), root, further)
