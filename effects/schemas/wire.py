"""Tools as they are sent to a model: copies that every provider accepts.

Which of the tools are sent, and how each is written, is found out once for a list of tools. The same tools always give
the same bytes, because providers keep the beginning of a request and the tools stand in it.

Each provider refuses schemas that others take, and it refuses the whole request, so that one schema would fail every
turn. The rules for schemas here are those of the strictest. They change how a schema is written and not what it means,
except at its top, where providers take less than what schemas can say; a call is checked against the schema itself in
any case. A schema that follows all rules is sent as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from ...states.openai_writing import legal_name
from ...states.values.value import MAX_QUOTED, shortened
from .names import renamed_properties, with_names
from .repairs import with_repairs
from .subschemas import Schema, is_one_of, mapped, resolve, types_of, with_common_references

MAX_TOOLS = 128
"""The most tools of a request: what OpenAI, Azure and others take."""

MAX_DESCRIPTION = 1_024
"""The most characters of a tool's description: what OpenAI takes."""

Definition = dict[str, Any]
"""A function tool of OpenAI's chat completions."""


@dataclass(frozen=True)
class WireTools:
    """Tools as they are sent. `left_out` are those that are not, by name, each with the reason as a sentence."""

    definitions: tuple[Definition, ...]
    left_out: dict[str, str]


def wire_tools(definitions: Iterable[Definition], condition: str = "") -> WireTools:
    """These tools as they are sent, in the same order. Of too many, those are left out that stand last at the servers
    with the most tools; tools of no server are kept first. `condition` says of
    these when they are left out, where that is not always so. `Pure.`"""
    left_out: dict[str, str] = {}
    written: dict[str, Definition] = {}
    for definition in definitions:
        name = str(definition["function"]["name"])
        try:
            written[name] = wire_definition(definition)
        except (TypeError, ValueError, AttributeError, RecursionError):
            left_out[name] = f"The tool {_quoted(name)} is left out: its schema cannot be written for a model."
    kept = _kept(list(written))
    for name in written.keys() - kept:
        left_out[name] = f"The tool {_quoted(name)} is left out{condition}: a request holds at most {MAX_TOOLS} tools."
    order = {name: left_out[name] for name in (*written, *left_out) if name in left_out}
    return WireTools(tuple(one for name, one in written.items() if name in kept), order)


def wire_definition(definition: Definition) -> Definition:
    """The definition of one tool as it is sent; a description says something, or is not there. Raises for a schema that
    is none. `Pure.`"""
    function = definition["function"]
    name = legal_name(function["name"])
    written = {**function, "name": name}
    if "description" in written and not str(written["description"] or "").strip():
        del written["description"]
    elif "description" in written:
        written["description"] = _cut(written["description"])
    if function.get("parameters") is not None:
        written["parameters"] = wire_schema(function["parameters"])
    return {**definition, "function": written}


def _cut(text: str) -> str:
    """The text, cut behind a word where it is too long."""
    if len(text) <= MAX_DESCRIPTION:
        return text
    beginning, blank, _ = text[: MAX_DESCRIPTION - 1].rpartition(" ")
    return f"{beginning if blank and len(beginning) > MAX_DESCRIPTION // 2 else text[: MAX_DESCRIPTION - 1]}…"


def _kept(names: Sequence[str]) -> frozenset[str]:
    """The names of the tools that are sent: in rounds, one of each server, after those of no server."""
    if len(names) <= MAX_TOOLS:
        return frozenset(names)
    servers: dict[str, list[str]] = {}
    for name in names:
        servers.setdefault(name.partition(":")[0] if ":" in name else "", []).append(name)
    own = servers.pop("", [])
    return frozenset([*own, *_in_rounds(list(servers.values()))][:MAX_TOOLS])


def _in_rounds(lists: Sequence[Sequence[str]]) -> Iterator[str]:
    for place in range(max(map(len, lists), default=0)):
        yield from (one[place] for one in lists if place < len(one))


def _quoted(name: str) -> str:
    return shortened(name, MAX_QUOTED)


# --- schemas

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
