"""Properties whose names some provider refuses: other names on the wire, and the way back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.schemas.names import property_names_of, renamed_properties, with_names

from ...support.cases import holds_for

TEXT = {"type": "string"}
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
