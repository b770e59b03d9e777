"""Strict schemas of tools, and the way back from what a model writes that is held to one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from turnwise import tool
from turnwise.effects.schemas.strict import strict_arguments
from turnwise.effects.schemas.subschemas import subschemas
from turnwise.effects.schemas.wire import wire_definition, wire_schema
from turnwise.effects.tools.normalization import normalized
from turnwise.effects.tools.schema_arguments import SchemaArguments
from turnwise.testing.strategies import values_of

Schema = dict[str, Any]

TEXT, NULL = {"type": "string"}, {"type": "null"}


def has(*required: str, **properties: Any) -> Schema:
    """Return the schema of an object with these properties."""
    return {"type": "object", "properties": properties, "required": list(required)}


def strict(schema: Schema) -> Schema | None:
    """Return the strict form of the arguments of a tool."""
    return strict_arguments(schema, wire_schema(schema))


def accepts_anything(**given: Any) -> None:
    """Take any arguments."""


# --- schemas, and values written as a strict schema wants them

_NAMES = st.sampled_from(["a", "b", "my key", "$x"])
_SCALARS = st.sampled_from(
    [
        TEXT,
        NULL,
        {"type": "integer", "minimum": 0, "default": 3},
        {"type": "number", "description": "A number."},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"enum": ["x", "y"]},
        {"enum": ["x", None]},
        {"const": "k"},
        {"$ref": "#/$defs/Shared"},
    ]
)


@st.composite
def _objects(draw: st.DrawFn, inner: SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(_NAMES, inner, min_size=1, max_size=3))
    required = draw(st.sets(st.sampled_from(sorted(properties))))
    closed = {"additionalProperties": False} if draw(st.booleans()) else {}
    return {"type": "object", "properties": properties, "required": sorted(required), **closed}


def _tagged(one: Schema, other: Schema) -> Schema:
    """Return a union of two objects of which each says what it is."""
    kinds = [
        {
            **each,
            "properties": {**each["properties"], "kind": {"type": "string", "const": name}},
            "required": [*each["required"], "kind"],
        }
        for name, each in (("one", one), ("other", other))
    ]
    return {"anyOf": kinds}


def _further(inner: SearchStrategy[Schema]) -> SearchStrategy[Schema]:
    objects = _objects(inner)
    return st.one_of(
        objects,
        st.builds(_tagged, objects, objects),
        inner.map(lambda found: {"type": "array", "items": found}),
        inner.map(lambda found: {"anyOf": [found, NULL]}),
    )


SHARED = has("a", a=TEXT, b={"type": "integer"})
ARGUMENTS = _objects(st.recursive(_SCALARS, _further, max_leaves=5)).map(
    lambda one: {**one, "$defs": {"Shared": SHARED}}
)
"""Schemas of arguments that can be written strictly."""

CALLS = ARGUMENTS.flatmap(
    lambda schema: st.tuples(
        st.just(schema), values_of(schema).filter(lambda value: Draft202012Validator(schema).is_valid(value))
    )
)


def filled(value: Any, schema: Schema) -> Any:
    """Return the value with null for each field that it could have and has not."""
    if "$ref" in schema:
        return filled(value, SHARED)
    if "anyOf" in schema:
        root = {"$defs": {"Shared": SHARED}}
        fitting = [one for one in schema["anyOf"] if Draft202012Validator({**root, **one}).is_valid(value)]
        return filled(value, fitting[0])
    if isinstance(value, list):
        return [filled(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    described = schema["properties"]
    return {name: filled(value[name], one) if name in value else None for name, one in described.items()}


def leaves_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield what a value holds besides null, by its place, and its empty parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list) and value is not None:
        yield path, value
    elif isinstance(value, dict | list):
        yield path, type(value)
    for name, part in parts:
        yield from leaves_of(part, (*path, name))


class TestLaws:
    """What holds for every schema and all arguments."""

    @given(ARGUMENTS)
    def test_every_object_is_closed_and_has_all_its_fields(self, schema: Schema) -> None:
        """And nothing has a default, and the way to the wire leaves all as it is."""
        written = strict(schema)

        assert written is not None
        for one in subschemas(written):
            if "properties" in one:
                assert one["required"] == [*one["properties"]]
                assert one["additionalProperties"] is False
            assert "default" not in one
        assert wire_schema(written) == written

    @given(CALLS)
    def test_what_fits_may_be_written_strictly_and_is_read_as_it_was(self, call: tuple[Schema, Any]) -> None:
        """Each null stays out that the schema itself does not permit."""
        schema, value = call
        written = json.dumps(filled(value, schema))
        held = Draft202012Validator(strict_arguments(schema, schema))  # by its own names

        read = normalized(written, schema)

        assert held.is_valid(json.loads(written))
        assert Draft202012Validator(schema).is_valid(read.data)
        assert dict(leaves_of(read.data)) == dict(leaves_of(value))
        SchemaArguments(accepts_anything, schema).check(written)
        assert normalized(read.text, schema) == read

    @given(CALLS)
    def test_what_fits_stays_as_it_is(self, call: tuple[Schema, Any]) -> None:
        """Also its nulls."""
        schema, value = call

        assert normalized(json.dumps(value), schema).data == value

    @given(CALLS)
    def test_every_null_that_does_not_fit_is_left_out(self, call: tuple[Schema, Any]) -> None:
        """At the top: what remains null must be given, or may be null."""
        schema, value = call
        nulls = dict.fromkeys(schema["properties"])

        read = normalized(json.dumps({**nulls, **value}), schema).data

        for name, one in schema["properties"].items():
            permits = Draft202012Validator({**one, "$defs": schema["$defs"]}).is_valid(None)
            assert name in read or (name not in value and not permits and name not in schema["required"])
            assert read.get(name, 0) is not None or permits or name in schema["required"]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [has("a", a=TEXT), has("b", b=TEXT)]},
        {"oneOf": [has("a", a=TEXT), has("b", b=TEXT)]},
        {"$ref": "#/$defs/Any", "$defs": {"Any": {"anyOf": [has("a", a=TEXT), has("b", b=TEXT)]}}},
        has(a={"type": "object"}),
        has(a={"type": "object", "additionalProperties": TEXT}),
        has(a={"type": ["object", "null"]}),
        has(a={"oneOf": [TEXT, NULL]}),
        has(a={}),
        {**has(a=TEXT), "additionalProperties": True},
        {**has(a=TEXT), "minProperties": 1},
        has("a", a={"anyOf": [has("x", x=TEXT), has("y", y=TEXT)], "properties": {"z": TEXT}}),
        has(a={"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}),
    ],
)
def test_what_a_strict_schema_cannot_say_is_not_written(schema: Schema) -> None:
    """Alternatives at the top, and objects that may hold anything."""
    assert strict(schema) is None


def test_a_tool_without_arguments_is_strict() -> None:
    """It takes an object without fields."""

    def now() -> str:
        return "noon"

    definition = wire_definition(tool(now, crash="pure").definition())
    assert strict(definition["function"]["parameters"]) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_a_schema_that_contains_itself_is_strict() -> None:
    """Its end is null."""
    node = has("value", value=TEXT, next={"$ref": "#/$defs/Node"})
    schema = {**has("list", list={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    written: Any = strict(schema)

    assert written["$defs"]["Node"]["properties"]["next"] == {"anyOf": [{"$ref": "#/$defs/Node"}, NULL]}
    deep = {"list": {"value": "a", "next": {"value": "b", "next": None}}}
    assert normalized(json.dumps(deep), schema).data == {"list": {"value": "a", "next": {"value": "b"}}}
