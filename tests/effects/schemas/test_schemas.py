"""JSON schemas of tools: their names, their definitions, and what each provider accepts of them."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from turnwise.effects.mcp.asking import McpArguments
from turnwise.effects.schemas.names import property_names_of, renamed_properties, with_names
from turnwise.effects.schemas.repairs import repaired
from turnwise.effects.schemas.wire import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    plain_schema,
    wire_schema,
    wire_tools,
    with_object_at_top,
)

from ...support.cases import holds_for
from ...support.operations import LINEAR, growth
from ...support.servers.openai_server import schema_faults

# --- Schemas of tools as they are sent, against the rules by which providers refuse whole requests.


TEXT = {"type": "string"}


def obj(**keywords: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", **keywords}


def has(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return obj(properties=properties)


def defs(**definitions: Any) -> dict[str, Any]:
    """Return definitions, as a keyword."""
    return {"$defs": definitions}


ODD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no properties": obj(),
    "properties null": obj(properties=None),
    "properties are a list": obj(properties=["a"]),
    "a property is the name of a type": has(a="string", b="int", c="no such type"),
    "a property is null": has(a=None),
    "type missing": {"properties": {"a": TEXT}},
    "type null": {"type": None, "properties": {"a": TEXT}},
    "type of the top is a list": {"type": ["object", "null"], "properties": {"a": TEXT}},
    "type in capitals": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    "types of another language": has(a={"type": "int"}, b={"type": "float"}, c={"type": "dict"}, d={"type": "list"}),
    "type any": has(a={"type": "any"}),
    "type repeated": has(a={"type": ["string", "string", "null"]}),
    "required null": obj(properties={"a": TEXT}, required=None),
    "required true": obj(properties={"a": TEXT}, required=True),
    "required is a text": obj(properties={"a": TEXT}, required="a"),
    "required repeated": obj(properties={"a": TEXT}, required=["a", "a", 3]),
    "required names no property": obj(properties={"a": TEXT}, required=["b"]),
    "required without properties": obj(required=["b"]),
    "required among the properties": has(a=TEXT, required=["a"]),
    "required at a nested property": has(o=has(a={"type": "string", "required": True}, b={**TEXT, "required": False})),
    "required at an item": has(o={"type": "array", "items": {"type": "string", "required": True}}),
    "combined at the top: oneOf": {"oneOf": [has(a=TEXT), has(b=TEXT)]},
    "combined at the top: oneOf with types": obj(oneOf=[{"type": "string"}, has(b=TEXT)]),
    "combined at the top: anyOf with required": obj(
        properties={"a": TEXT, "b": TEXT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]
    ),
    "combined at the top: allOf of references": {
        "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        **defs(A=has(a=TEXT), B=obj(properties={"b": TEXT}, required=["b"])),
    },
    "combined at the top: allOf in anyOf": {"anyOf": [{"allOf": [has(a=TEXT), has(b=TEXT)]}, has(c=TEXT)]},
    "combined at the top: not": obj(properties={"a": TEXT}, **{"not": {"required": ["a"]}}),
    "combined at the top: enum": obj(enum=[{"a": 1}, {"a": 2}]),
    "combined at the top: const": obj(const={"a": 1}),
    "combined at the top, closed": obj(
        properties={"a": TEXT}, additionalProperties=False, anyOf=[has(a={"minLength": 1}), has(z=TEXT)]
    ),
    "alternatives that a constant tells apart": obj(
        oneOf=[
            obj(properties={"kind": {"const": "dog"}, "bark": TEXT}, required=["kind", "bark"]),
            obj(properties={"kind": {"const": "cat"}, "purr": TEXT}, required=["kind"]),
        ]
    ),
    "alternatives true and false": obj(anyOf=[True, has(a=TEXT)]),
    "$ref at the top": {"$ref": "#/$defs/X", **defs(X=has(a=TEXT))},
    "$ref at the top, to definitions": {"$ref": "#/definitions/X", "definitions": {"X": has(a=TEXT)}},
    "$ref to itself at the top": {"$ref": "#/$defs/X", **defs(X=has(child={"$ref": "#/$defs/X"}))},
    "$ref to #": has(child={"$ref": "#"}),
    "$ref to a property": has(a=has(x=TEXT), b={"$ref": "#/properties/a"}),
    "$ref to a property with a space": has(**{"my key": has(x=TEXT)}, b={"$ref": "#/properties/my%20key"}),
    "$ref to an anchor": {**has(a={"$ref": "#part"}), **defs(p={"$anchor": "part", **TEXT})},
    "$ref into nested definitions": has(
        a={"$ref": "#/properties/b/definitions/c"}, b={"type": "object", "definitions": {"c": TEXT}}
    ),
    "definitions of two names that become one": {
        **has(a={"$ref": "#/$defs/a b"}, b={"$ref": "#/$defs/a_b"}),
        **defs(**{"a b": TEXT, "a_b": {"type": "integer"}}),
    },
    "definitions with a slash": {**has(a={"$ref": "#/$defs/a~1b"}), **defs(**{"a/b": TEXT})},
    "a generic of pydantic": {**has(a={"$ref": "#/$defs/Page[int]"}), **defs(**{"Page[int]": has(x=TEXT)})},
    "an array without items": has(a={"type": "array"}),
    "items null": has(a={"type": "array", "items": None}),
    "items true": has(a={"type": "array", "items": True}),
    "items false behind the first": has(a={"type": "array", "prefixItems": [TEXT], "items": False}),
    "a tuple of an old draft": has(a={"type": "array", "items": [TEXT, {"type": "array"}], "additionalItems": False}),
    "first items only": has(a={"type": "array", "prefixItems": [TEXT]}),
    "an array among types": has(a={"type": ["null", "array"]}),
    "an array in an alternative": has(a={"anyOf": [{"type": "array"}, {"type": "null"}]}),
    "an array in definitions": {**has(a={"$ref": "#/$defs/L"}), **defs(L={"type": "array"})},
    "an array in an array": has(a={"type": "array", "items": {"type": "array"}}),
    "an array in other properties": obj(properties={}, additionalProperties={"type": "array"}),
    "bounds of draft 4": has(a={"type": "number", "maximum": 9, "exclusiveMaximum": True, "exclusiveMinimum": False}),
    "an unknown dialect": {"$schema": "urn:mine", **has(a=TEXT)},
    "a dialect and an address": {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:x", **has(a=TEXT)},
    "no values": has(a={"type": "string", "enum": []}),
    "values twice": has(a={"enum": ["x", "x", "y"]}),
    "values by name": has(a={"enum": {"x": 1, "y": 2}}),
    "values are numbers": has(a={"enum": [1, 2]}),
    "a constant without a type": has(a={"const": 3}, b={"const": True}, c={"const": None}),
    "a pattern of another language": has(a={"type": "string", "pattern": "^\\p{L}+$"}),
    "names by a pattern of another language": obj(patternProperties={"^\\p{Lu}": TEXT}),
    "every value and none": has(a=True, b=False),
    "none, but required": obj(properties={"b": False}, required=["b"]),
    "additional properties null": obj(properties={}, additionalProperties=None),
    "a description that is a list": has(a={"type": "string", "description": ["One", "two"], "title": 3}),
    "a property with an empty name": has(**{"": TEXT}),
    "a property of blanks": has(**{" ": TEXT, "  ": TEXT}),
    "a property in Chinese": obj(properties={"\u57ce\u5e02": TEXT}, required=["\u57ce\u5e02"]),
    "a property with a slash and brackets": has(**{"filter[name]": TEXT, "a/b": TEXT, "@type": TEXT}),
    "properties that would have one name": has(**{"a b": TEXT, "a_b": TEXT, "a.b": TEXT, "A_B": TEXT, "a  b": TEXT}),
    "a property of 65 characters": has(**{"a" * 65: TEXT}),
    "a nested property with a $": has(o={"type": "array", "items": has(**{"$top": TEXT})}),
    "nested deeply": has(a=has(b=has(c=has(d=has(e={"type": "array"}))))),
}


EACH_ODD_ONE = holds_for("name", ODD)


class TestRules:
    """What a server lists is sent so that every provider takes it."""

    @EACH_ODD_ONE
    def test_no_provider_refuses_it(self, name: str) -> None:
        """Neither OpenAI, for its structure, nor Anthropic, for its names and its dialect."""
        sent = wire_schema(repaired(ODD[name]))

        assert list(schema_faults(sent)) == []
        Draft202012Validator.check_schema(sent)

    @EACH_ODD_ONE
    def test_it_can_be_called(self, name: str) -> None:
        """What was repaired is a schema that arguments can be checked against."""
        McpArguments("tool", repaired(ODD[name]))

    @EACH_ODD_ONE
    def test_what_was_given_is_unchanged(self, name: str) -> None:
        """The rules write a copy."""
        given = deepcopy(ODD[name])
        plain_schema(wire_schema(repaired(given)))

        assert given == ODD[name]

    @EACH_ODD_ONE
    def test_what_follows_the_rules_stays_as_it_is(self, name: str) -> None:
        """So the same tools always give the same bytes."""
        sent = wire_schema(repaired(ODD[name]))

        assert json.dumps(wire_schema(sent)) == json.dumps(sent)

    @EACH_ODD_ONE
    def test_the_plain_form_has_plain_words_only(self, name: str) -> None:
        """No reference, no combination but alternatives, one type."""
        plain = plain_schema(wire_schema(repaired(ODD[name])))

        assert list(schema_faults(plain)) == []
        assert not {"$ref", "$defs", "allOf", "oneOf", "const", "pattern", "prefixItems"} & set(words(plain))


def words(schema: Any) -> list[str]:
    """Return all keywords of a schema."""
    if isinstance(schema, list):
        return [word for one in schema for word in words(one)]
    if not isinstance(schema, dict):
        return []
    own = [] if schema.get("type") is None and "properties" not in schema and "anyOf" not in schema else list(schema)
    parts = [schema.get("properties", {}).values(), schema.get("anyOf", []), [schema.get("items")]]
    return [*own, *(word for part in parts for one in part for word in words(one))]


class TestMeaning:
    """The rules change how a schema is written."""

    @pytest.mark.parametrize(
        ("given", "sent"),
        [
            (
                ODD["combined at the top: anyOf with required"],
                {**has(a=TEXT, b=TEXT), "description": "Give these together: a; or b."},
            ),
            (
                ODD["alternatives that a constant tells apart"],
                {
                    **has(kind={"type": "string", "enum": ["dog", "cat"]}, bark=TEXT, purr=TEXT),
                    "required": ["kind"],
                    "description": "Give these together: kind, bark; or kind.",
                },
            ),
            (
                ODD["combined at the top: allOf of references"],
                {
                    **obj(properties={"a": TEXT, "b": TEXT}, required=["b"]),
                    **ODD["combined at the top: allOf of references"],
                    "allOf": None,
                },
            ),
            (ODD["required at a nested property"], has(o=obj(properties={"a": TEXT, "b": TEXT}, required=["a"]))),
            (
                ODD["bounds of draft 4"],
                has(a={"type": "number", "exclusiveMaximum": 9}),
            ),
            (
                ODD["items false behind the first"],
                has(a={"type": "array", "prefixItems": [TEXT], "items": {}, "maxItems": 1}),
            ),
        ],
    )
    def test_what_is_meant_is_sent(self, given: dict[str, Any], sent: dict[str, Any]) -> None:
        """In the words that everybody reads."""
        expected = {keyword: value for keyword, value in sent.items() if value is not None}

        assert wire_schema(repaired(given)) == expected

    @holds_for(
        ("schema", "value"),
        [
            (ODD["combined at the top: oneOf"], {"a": "x"}),
            (ODD["combined at the top: allOf in anyOf"], {"a": "x", "b": "y"}),
            (ODD["combined at the top: not"], {}),
            (ODD["combined at the top: enum"], {"a": 2}),
            (ODD["alternatives that a constant tells apart"], {"kind": "cat", "purr": "x"}),
            (ODD["$ref to itself at the top"], {"child": {"child": {}}}),
            (ODD["$ref to a property"], {"b": {"x": "y"}}),
            (ODD["$ref into nested definitions"], {"a": "x"}),
            (ODD["a tuple of an old draft"], {"a": ["x", [1]]}),
            (ODD["a constant without a type"], {"a": 3, "b": True, "c": None}),
            (ODD["required names no property"], {"b": [1]}),
        ],
    )
    def test_what_the_schema_permits_is_permitted(self, schema: dict[str, Any], value: dict[str, Any]) -> None:
        """The form on the wire permits the same, or more."""
        assert Draft202012Validator(wire_schema(repaired(schema))).is_valid(value)

    @pytest.mark.parametrize(
        "schema",
        [
            has(a=TEXT),
            obj(properties={"a": TEXT}, required=["a"], additionalProperties=False),
            {**has(a={"$ref": "#/$defs/A"}), **defs(A=has(b={"type": "array", "items": TEXT}))},
            has(a={"anyOf": [TEXT, {"type": "null"}], "default": None, "title": "A"}),
            has(a={"type": "object", "additionalProperties": {"type": "integer"}}),
            has(
                a={"type": ["string", "null"]}, b={"type": "string", "enum": ["x"]}, c={"const": "x", "type": "string"}
            ),
            has(a={"oneOf": [TEXT, {"type": "integer"}]}),
        ],
    )
    def test_a_schema_that_all_take_is_sent_as_it_is(self, schema: dict[str, Any]) -> None:
        """It is the same object, and costs nothing more."""
        assert wire_schema(schema) is schema

    def test_a_schema_that_refers_to_itself_ends_in_its_plain_form(self) -> None:
        """Behind one round."""
        schema = {**has(n={"$ref": "#/$defs/N"}), **defs(N=has(next={"$ref": "#/$defs/N"}, v=TEXT))}

        assert plain_schema(schema) == has(n=has(next=has(), v=TEXT))


def diamonds(count: int) -> dict[str, Any]:
    """Return a schema in which each of so many definitions is reached in two ways from the one before."""
    definitions = {
        f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}, {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}]}]}
        for n in range(count)
    }
    return {"$ref": "#/$defs/D0", "$defs": {**definitions, f"D{count}": has(a=TEXT)}}


def test_what_is_reached_in_many_ways_is_read_once() -> None:
    """Merging costs as much as the schema is large, not as many ways as lead through it."""
    assert with_object_at_top(diamonds(3))["properties"] == {"a": TEXT}
    assert growth(diamonds, with_object_at_top, 4) < LINEAR


# --- Which tools are sent, and what is sent of them beside their schemas.


def offer(name: str, **function: Any) -> dict[str, Any]:
    """Return a definition."""
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


def sent(*definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions that are sent."""
    return [one["function"] for one in wire_tools(definitions).definitions]


class TestTexts:
    """Names and descriptions."""

    @pytest.mark.parametrize("text", ["d" * 3_000, "word " * 1_000, "\u57ce" * 2_000])
    def test_a_long_description_is_cut(self, text: str) -> None:
        """At the length that every provider takes."""
        (function,) = sent(offer("a", description=text))

        assert MAX_DESCRIPTION // 2 < len(function["description"]) <= MAX_DESCRIPTION
        assert function["description"].endswith("\u2026")

    @pytest.mark.parametrize("text", ["", "  \n", None])
    def test_an_empty_description_is_not_sent(self, text: str | None) -> None:
        """Some providers refuse it."""
        assert sent(offer("a", description=text)) == [offer("a")["function"]]

    def test_names_are_legal(self) -> None:
        """And those of different tools different."""
        names = [one["name"] for one in sent(offer("s:a.b/c"), offer("s:a.b_c"), offer("s:" + "n" * 128))]

        assert len(set(names)) == 3
        assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in names)


class TestNumber:
    """More tools than a request holds."""

    def test_no_more_are_sent_than_every_provider_takes(self) -> None:
        """The others are named, each with a sentence."""
        tools = wire_tools([offer(f"s:t{n}") for n in range(130)])

        assert len(tools.definitions) == MAX_TOOLS
        assert tools.left_out == {
            f"s:t{n}": f"The tool s:t{n} is left out: a request holds at most 128 tools." for n in (128, 129)
        }

    def test_a_large_server_does_not_displace_the_others(self) -> None:
        """Nor the tools of the application, wherever they stand."""
        few = [offer("own"), offer("small:a"), offer("small:b")]
        tools = wire_tools([*(offer(f"large:t{n}") for n in range(400)), *few])

        assert len(tools.definitions) == MAX_TOOLS
        assert not {"own", "small:a", "small:b"} & tools.left_out.keys()

    def test_the_same_tools_give_the_same_bytes(self) -> None:
        """In the order in which they were given."""
        given = [offer(f"s{n % 7}:t{n}") for n in range(300)]
        texts = {json.dumps(wire_tools(given).definitions) for _ in range(3)}
        names = [one["function"]["name"] for one in json.loads(texts.pop())]
        order = [one["function"]["name"] for one in wire_tools(given).definitions]

        assert texts == set()
        assert names == order

    @pytest.mark.parametrize("schema", ["text", 3, ["a"]])
    def test_a_schema_that_is_none_leaves_its_tool_out(self, schema: Any) -> None:
        """The others are sent."""
        tools = wire_tools([offer("good"), offer("bad", parameters=schema)])

        assert [one["function"]["name"] for one in tools.definitions] == ["good"]
        assert tools.left_out == {"bad": "The tool bad is left out: its schema cannot be written for a model."}


# --- Properties whose names some provider refuses: other names on the wire, and the way back.


LEGAL = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "my key": TEXT,
        "list of": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "one": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]},
        "free": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Item"}},
        "pair": {"type": "array", "prefixItems": [{"$ref": "#/$defs/Item"}], "items": TEXT},
    },
    "$defs": {"Item": {"type": "object", "properties": {"$value": TEXT, "child node": {"$ref": "#/$defs/Item"}}}},
}


def restored(schema: dict[str, Any], arguments: Any) -> Any:
    """Return the arguments with their own names."""
    names = property_names_of(schema)
    assert names is not None
    return json.loads(names.restored(json.dumps(arguments)))


class TestNames:
    """The names on the wire."""

    @given(st.sets(st.text(max_size=80), min_size=1, max_size=8))
    def test_they_are_legal_and_different(self, names: set[str]) -> None:
        """Whatever the properties are called."""
        schema = {"type": "object", "properties": dict.fromkeys(sorted(names), TEXT)}
        sent = with_names(schema, renamed_properties(schema))["properties"]

        assert len(sent) == len(names)
        assert all(map(LEGAL.fullmatch, sent))

    def test_a_legal_name_stays(self) -> None:
        """There is no way back to look for."""
        assert property_names_of({"type": "object", "properties": {"a.b-c_D1": TEXT}}) is None

    def test_the_description_tells_the_own_name(self) -> None:
        """So that the model knows what is meant."""
        schema = {"type": "object", "properties": {"$filter": {"description": "OData."}}, "required": ["$filter"]}
        sent = with_names(schema, renamed_properties(schema))

        assert sent == {
            "type": "object",
            "properties": {"filter": {"description": "($filter) OData."}},
            "required": ["filter"],
        }


class TestBack:
    """Arguments get the properties' own names."""

    @holds_for(
        ("written", "own"),
        [
            ({"my_key": "x"}, {"my key": "x"}),
            ({"my key": "x"}, {"my key": "x"}),
            (
                {"list_of": [{"value": "1"}, {"child_node": {"value": "2"}}]},
                {"list of": [{"$value": "1"}, {"child node": {"$value": "2"}}]},
            ),
            ({"one": {"value": "x"}}, {"one": {"$value": "x"}}),
            ({"one": None}, {"one": None}),
            ({"free": {"my_key": {"value": "x"}}}, {"free": {"my_key": {"$value": "x"}}}),
            ({"pair": [{"value": "x"}, "value"]}, {"pair": [{"$value": "x"}, "value"]}),
            ({"value": "at the wrong place"}, {"value": "at the wrong place"}),
            ({"my_key": "x", "my key": "y"}, {"my_key": "x", "my key": "y"}),
        ],
    )
    def test_where_the_schema_has_the_property(self, written: Any, own: Any) -> None:
        """Nested, in lists and in alternatives too; a free name that looks the same is nobody's property."""
        assert restored(NESTED, written) == own

    @pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "null", '{"other":  1}', '{"one": NaN}'])
    def test_other_texts_stay_as_they_are(self, text: str) -> None:
        """Whoever checks them says what is wrong."""
        names = property_names_of(NESTED)

        assert names is not None
        assert names.restored(text) == text

    @given(st.dictionaries(st.sampled_from(["my key", "a", "$x"]), st.text(max_size=3)))
    def test_there_and_back(self, arguments: dict[str, str]) -> None:
        """What was written under the names of the wire comes back under the own ones."""
        schema = {"type": "object", "properties": {"my key": TEXT, "a": TEXT, "$x": TEXT}}
        names = renamed_properties(schema)
        written = {names.get(name, name): value for name, value in arguments.items()}

        assert restored(schema, written) == arguments
