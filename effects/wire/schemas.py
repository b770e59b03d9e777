"""A tool's schema in the form that every provider accepts: a copy for the wire.

Each provider refuses schemas that others take, and it refuses the whole request, so that one schema would fail every
turn. The rules here are those of the strictest. They change how a schema is written and not what it means, except at
its top, where providers take less than what schemas can say; a call is checked against the schema itself in any case.
A schema that follows all rules is sent as it is.

Before all this, a schema is repaired where it is not allowed. Schemas come out of generators for other formats:
OpenAPI, older drafts, the types of some programming language. What such a generator means is mostly plain:
`"required": true` at a property means that it is required. So the common ones are rewritten to what they mean, before
the schema is checked. What remains wrong after that is no repair but a guess, and is left to whoever checks the
schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from .names import renamed_properties, with_names
from .subschemas import BY_NAME, IN_LIST, ONE, Schema, is_one_of, mapped, resolve, types_of, with_common_references

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
    written = with_object_at_top(with_common_references(_with_repairs(schema)))
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


_MERGED = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "not")
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
    """The schema as an object with properties, without the keywords `_MERGED`. A schema that is so already is returned
    as it is.

    Most providers want `{"type": "object", "properties": …}` there and refuse `oneOf`, `anyOf`, `allOf` and the like,
    which they take anywhere below. So what is combined is merged: all properties of all alternatives, of which those
    are required that each alternative requires. That permits more than the schema does. A text says what belongs
    together, and a call is still checked against the schema itself. `Pure.`
    """
    is_plain = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if is_plain and not any(keyword in schema for keyword in _MERGED):
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
        **{keyword: one for keyword, one in schema.items() if keyword not in (*_MERGED, *_WRITTEN)},
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


_TYPES = {
    **{name: name for name in ("string", "number", "integer", "boolean", "object", "array", "null")},
    **{"str": "string", "text": "string", "uuid": "string", "date": "string", "datetime": "string", "file": "string"},
    **{"int": "integer", "long": "integer", "int32": "integer", "int64": "integer"},
    **{"float": "number", "double": "number", "decimal": "number"},
    **{"bool": "boolean", "list": "array", "tuple": "array", "set": "array"},
    **{"dict": "object", "map": "object", "struct": "object", "none": "null", "nil": "null"},
}
"""The types of JSON schemas, and the names by which other languages call them."""

_CURRENT = "https://json-schema.org/draft/2020-12/schema"
_DIALECT = re.compile(r"https?://json-schema\.org/(?:draft-0[3-7]|draft/20(?:19-09|20-12))/schema#?")

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
    mended = _with_repairs(schema)
    is_of_its_dialect = mended is schema and _DIALECT.fullmatch(str(schema.get("$schema", _CURRENT)))
    unsaid = () if is_of_its_dialect else ("$schema",)
    named = types_of(mended)
    typed = {} if named == ("object",) or (named and "object" not in named) else {"type": "object"}
    return {keyword: value for keyword, value in {**mended, **typed}.items() if keyword not in unsaid}


def _with_repairs(schema: Schema) -> Schema:
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
    """A regular expression of another language says nothing here."""
    kept = {keyword: value for keyword, value in schema.items() if keyword != "pattern" or _is_pattern(value)}
    by_pattern = kept.get("patternProperties")
    if isinstance(by_pattern, dict) and not all(map(_is_pattern, by_pattern)):
        kept["patternProperties"] = {name: one for name, one in by_pattern.items() if _is_pattern(name)}
        return kept
    return schema if len(kept) == len(schema) else kept


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
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
