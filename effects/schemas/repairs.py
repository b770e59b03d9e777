"""Repairs schemas that are not allowed, where it is plain what they mean.

Schemas come out of generators for other formats: OpenAPI, older drafts, the types of some programming language. What
such a generator means is mostly plain: `"required": true` at a property means that it is required. So the common ones
are rewritten to what they mean, before the schema is checked. What remains wrong after that is no repair but a guess,
and is left to whoever checks the schema.
"""

from __future__ import annotations

import re
from typing import Any

from .check import has_known_dialect, is_pattern
from .subschemas import BY_NAME, IN_LIST, ONE, Schema, mapped, types_of

_TYPES = {
    **{name: name for name in ("string", "number", "integer", "boolean", "object", "array", "null")},
    **{"str": "string", "text": "string", "uuid": "string", "date": "string", "datetime": "string", "file": "string"},
    **{"int": "integer", "long": "integer", "int32": "integer", "int64": "integer"},
    **{"float": "number", "double": "number", "decimal": "number"},
    **{"bool": "boolean", "list": "array", "tuple": "array", "set": "array"},
    **{"dict": "object", "map": "object", "struct": "object", "none": "null", "nil": "null"},
}
"""The types of JSON schemas, and the names by which other languages call them."""

_MAY_BE_NULL = ("default", "const", "example")
"""Keywords whose value may be null."""

_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
"""Keywords that were true or false in old drafts, beside the bound that they make exclusive."""


def repaired(schema: Any) -> Schema:
    """The schema of a tool's arguments, with what its generator meant in place of what is not allowed. What has to be
    repaired, or names no dialect that is known, is of the current one afterwards. A schema that names no type, and
    anything but a schema, becomes that of an object. `Pure.`"""
    if not isinstance(schema, dict):
        return {"type": "object"}
    mended = with_repairs(schema)
    is_of_its_dialect = mended is schema and has_known_dialect(schema)
    unsaid = () if is_of_its_dialect else ("$schema",)
    named = types_of(mended)
    typed = {} if named == ("object",) or (named and "object" not in named) else {"type": "object"}
    return {keyword: value for keyword, value in {**mended, **typed}.items() if keyword not in unsaid}


def with_repairs(schema: Schema) -> Schema:
    """The schema with each schema in it repaired; the same object if there is nothing to repair. `Pure.`"""
    mended: Schema = mapped(mapped(schema, _repair), _without_marks)
    return mended


def _repair(schema: Schema) -> Schema:
    for change in _REPAIRS:
        schema = change(schema)
    return schema


def _without_nulls(schema: Schema) -> Schema:
    """Nothing is said by a keyword whose value is null."""
    if all(value is not None or keyword in _MAY_BE_NULL for keyword, value in schema.items()):
        return schema
    return {keyword: value for keyword, value in schema.items() if value is not None or keyword in _MAY_BE_NULL}


def _types(schema: Schema) -> Schema:
    """A type has one of seven names; another word says nothing."""
    given = schema.get("type")
    if given is None or given in _TYPES.values():
        return schema
    if isinstance(given, list) and given and all(one in _TYPES.values() for one in given):
        return schema if len(set(given)) == len(given) else {**schema, "type": list(dict.fromkeys(given))}
    listed = [_TYPES.get(str(one).lower()) for one in (given if isinstance(given, list) else [given])]
    known = list(dict.fromkeys(one for one in listed if one is not None))
    rest = {keyword: value for keyword, value in schema.items() if keyword != "type"}
    if not known or None in listed:
        return rest
    return {**schema, "type": known if isinstance(given, list) else known[0]}


def _requirements_among_properties(schema: Schema) -> Schema:
    """A list of names under `required` among the properties belongs beside them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("required"), list):
        return schema
    others = {name: one for name, one in properties.items() if name != "required"}
    named = [name for name in properties["required"] if isinstance(name, str) and name in others]
    return {**schema, "properties": others, "required": [*_listed(schema.get("required")), *named]}


def _requirements_at_properties(schema: Schema) -> Schema:
    """A property that says itself whether it is required is listed, or not, where the object lists them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    saying = [name for name, one in properties.items() if isinstance(one, dict) and type(one.get("required")) is bool]
    if not saying:
        return schema
    required = [name for name in saying if properties[name]["required"]]
    silent = {name: {key: value for key, value in properties[name].items() if key != "required"} for name in saying}
    listed = [*_listed(schema.get("required")), *required]
    return {**schema, "properties": {**properties, **silent}, **({"required": listed} if listed else {})}


def _without_marks(schema: Schema) -> Schema:
    """What is no property cannot be required."""
    if type(schema.get("required")) is not bool:
        return schema
    return {keyword: value for keyword, value in schema.items() if keyword != "required"}


def _required_in(schema: Schema) -> Schema:
    """What is required is a list of different names. True and false are left to the object that has this property."""
    given = schema.get("required", [])
    if type(given) is bool or (isinstance(given, list) and _are_names(given)):
        return schema
    return {**schema, "required": list(dict.fromkeys(_listed(given)))}


def _listed(required: object) -> list[str]:
    if isinstance(required, str):
        return [required]
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _are_names(listed: list[Any]) -> bool:
    return all(isinstance(name, str) for name in listed) and len(set(listed)) == len(listed)


def _bounds(schema: Schema) -> Schema:
    """An exclusive bound is a number of its own, and not a mark at another one."""
    for exclusive, bound in _BOUNDS:
        if type(mark := schema.get(exclusive)) is bool:
            rest = {keyword: value for keyword, value in schema.items() if keyword != exclusive}
            if mark and bound in rest:
                rest[exclusive] = rest.pop(bound)
            schema = rest
    return schema


def _tuples(schema: Schema) -> Schema:
    """A list of schemas for the first items stands under `prefixItems`, and that of the others under `items`."""
    if not isinstance(schema.get("items"), list):
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword not in ("items", "additionalItems")}
    others = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    return {**rest, **({"prefixItems": schema["items"]} if schema["items"] else {}), **others}


def _parts(schema: Schema) -> Schema:
    """A part of a schema is a schema: the name of a type stands for one, and anything else for every value."""
    changed: Schema = {}
    for keyword, value in schema.items():
        if keyword in BY_NAME:
            by_name = value if isinstance(value, dict) else {}
            if by_name is not value or not all(map(_is_schema, by_name.values())):
                changed[keyword] = {name: _as_schema(one) for name, one in by_name.items()}
        elif keyword in IN_LIST:
            listed = value if isinstance(value, list) else [value]
            if listed is not value or not all(map(_is_schema, listed)):
                changed[keyword] = [_as_schema(one) for one in listed]
        elif keyword in ONE and not _is_schema(value):
            changed[keyword] = _as_schema(value)
    empty = [keyword for keyword in IN_LIST if schema.get(keyword) == []]
    if not changed and not empty:
        return schema
    return {keyword: value for keyword, value in {**schema, **changed}.items() if keyword not in empty}


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _as_schema(value: Any) -> Any:
    if _is_schema(value):
        return value
    return {"type": _TYPES[value.lower()]} if isinstance(value, str) and value.lower() in _TYPES else {}


def _patterns(schema: Schema) -> Schema:
    """A regular expression of another language says nothing here, and neither does one that is too large."""
    kept = {keyword: value for keyword, value in schema.items() if keyword != "pattern" or _is_pattern(value)}
    by_pattern = kept.get("patternProperties")
    if isinstance(by_pattern, dict) and not all(map(_is_pattern, by_pattern)):
        kept["patternProperties"] = {name: one for name, one in by_pattern.items() if _is_pattern(name)}
        return kept
    return schema if len(kept) == len(schema) else kept


def _is_pattern(value: object) -> bool:
    """Whether providers, many of which are written in Python, and the check can apply this regular expression."""
    try:
        return isinstance(value, str) and re.compile(value) is not None and is_pattern(value)
    except (re.error, RecursionError, OverflowError):
        return False


def _values(schema: Schema) -> Schema:
    """The permitted values are a list."""
    given = schema.get("enum")
    if given is None or (isinstance(given, list) and given):
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    return {**rest, "enum": list(given)} if isinstance(given, dict) and given else rest


def _texts(schema: Schema) -> Schema:
    """Titles and descriptions are texts."""
    wrong = [name for name in ("title", "description") if name in schema and not isinstance(schema[name], str)]
    return {keyword: value for keyword, value in schema.items() if keyword not in wrong} if wrong else schema


_REPAIRS = (
    _without_nulls,
    _types,
    _tuples,
    _requirements_among_properties,
    _requirements_at_properties,
    _required_in,
    _bounds,
    _parts,
    _patterns,
    _values,
    _texts,
)
"""What is repaired at each schema, in this order. Each returns the same object if there is nothing to repair."""
