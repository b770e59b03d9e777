"""The arguments of a call are read as a model meant them, where there is only one way to mean them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, Field

from turnwise import tool
from turnwise.effects.tools.normalization import MAX_ARGUMENTS, InvalidArguments, normalized, read_object
from turnwise.testing.strategies import values_of

from ...support.cases import holds_for
from ...support.tools import resolve_call

BIG = 2**63 + 12_345
INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}


def list_of(items: Any) -> dict[str, Any]:
    """The schema of an array of these."""
    return {"type": "array", "items": items}


def object_of(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": properties}


def either(*alternatives: Any) -> dict[str, Any]:
    """The schema of these alternatives."""
    return {"anyOf": list(alternatives)}


def fitted(value: Any, schema: Any, **root: Any) -> Any:
    """What becomes of this value of an argument, as the model wrote it in JSON."""
    text = value if isinstance(value, Written) else json.dumps(value)
    return normalized(f'{{"it": {text}}}', {**object_of(it=schema), **root}).data["it"]


class Written(str):
    """A value as JSON text."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is neither 1.0 nor true."""
    return json.dumps(one) == json.dumps(other)


class TestTheText:
    """What holds an object in one way only is that object."""

    @holds_for("text", ["", " \n", "null", '""', '" "', "{}", '"{}"', '"null"', '"\\"\\""', "\ufeff{}"])
    def test_nothing_is_an_empty_object(self, text: str) -> None:
        """So models and servers write that there are no arguments."""
        assert read_object(text) == ("{}", {})

    @pytest.mark.parametrize("times", [1, 2, 3, 4])
    def test_an_object_may_be_encoded_several_times(self, times: int) -> None:
        """Servers encode what the model has encoded."""
        text = json.dumps({"a": 'say "hi"\n'})
        for _ in range(times):
            text = json.dumps(text)

        assert read_object(text).data == {"a": 'say "hi"\n'}

    @pytest.mark.parametrize("character", ["\n", "\t", "\r", "\x00", "\x1f"])
    def test_control_characters_stand_for_themselves(self, character: str) -> None:
        """In a text, in a name, and in an object that is encoded twice; the text that is stored is JSON."""
        raw = f'{{"a{character}": "x{character}y\\n\\"{character}"}}'

        for text in (raw, json.dumps(raw)):
            stored, data = read_object(text)

            assert data == {f"a{character}": f'x{character}y\n"{character}'}
            assert json.loads(stored) == data

    @holds_for(
        "text",
        [
            "{}{}",
            '{"a": 1} {"a": 2}',
            '{"a": 1} as you wished',
            '{"a": 1}<|call|>',
            'Here: {"a": 1}',
            '```json\n{"a": 1}\n```',
            "{'a': 1}",
            "{a: 1}",
            '{"a": 1,}',
            '{"a": True}',
            '{"a": None}',
            '{"a": 1 /* one */}',
            '{"a": 01}',
            '{"a": .5}',
            '{"a": NaN}',
            '{"a": -Infinity}',
            '{"a": "\\x41"}',
            '{"a": "b',
            '{"a": [1, 2',
            '{"a": "b\n',
            "[]",
            "7",
            "true",
            '"text"',
            json.dumps(json.dumps([1])),
            '{"a": ' + "9" * 10_000 + "}",
            '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}",
            '{"a":' * 100_000,
            '"' * 999_999,
            '"\\' * 400_000 + "\n",
        ],
    )
    def test_what_has_several_readings_is_refused_soon(self, text: str) -> None:
        """A sentence of bounded length says so, however long or deep the text is."""
        began = time.process_time()

        with pytest.raises(InvalidArguments) as refused:
            read_object(text)

        assert refused.value.sentence.startswith("Invalid input: the arguments are not a JSON object")
        assert len(refused.value.sentence) < 200
        assert time.process_time() - began < 1

    def test_what_is_too_long_is_refused(self) -> None:
        """Before anything reads it."""
        with pytest.raises(InvalidArguments, match="longer than"):
            read_object(" " * (MAX_ARGUMENTS + 1))

    @pytest.mark.parametrize(
        ("text", "stored"),
        [
            ('{"a": 1, "a": 2}', '{"a": 2}'),
            ('{"a": {"b": 1, "b": "x:y"}, "c": ":"}', '{"a": {"b": "x:y"}, "c": ":"}'),
            ('{"a" :1 ,"a" :2}', '{"a": 2}'),
            ('{"a": ":", "b:": "::"}', '{"a": ":", "b:": "::"}'),
        ],
    )
    def test_of_a_name_that_is_written_twice_the_last_value_is_kept(self, text: str, stored: str) -> None:
        """So no two readers of the log, of the request or of an approval see different arguments."""
        assert read_object(text).text == stored

    def test_half_a_character_is_replaced_at_every_level(self) -> None:
        """Also where it is an escape in an object that is encoded twice."""
        assert read_object(json.dumps('{"a": "\\ud83d"}')).data == {"a": "\ufffd"}


class TestValues:
    """A value is converted where the schema does not admit it as it is, and admits what it stands for."""

    @holds_for(
        ("schema", "value", "read"),
        [
            (list_of(TEXT), '["a", "b"]', ["a", "b"]),
            (list_of(INTEGER), '["1", 2.0]', [1, 2]),
            (list_of(TEXT), "[\n]", []),
            (list_of(TEXT), '["a\nb"]', ["a\nb"]),
            (list_of(list_of(INTEGER)), '["[1]", [2]]', [[1], [2]]),
            (object_of(a=NUMBER), '{"a": "1.5"}', {"a": 1.5}),
            (object_of(a=NUMBER), json.dumps('{"a": 1}'), {"a": 1}),
            ({"type": "object", "additionalProperties": INTEGER}, {"x": "1"}, {"x": 1}),
            ({"type": "array", "prefixItems": [INTEGER, TEXT]}, ["1", "1"], [1, "1"]),
            ({"items": [INTEGER], "additionalItems": BOOLEAN, "type": "array"}, ["1", "true"], [1, True]),
            (INTEGER, "7", 7),
            (INTEGER, " -7 ", -7),
            (INTEGER, 7.0, 7),
            (INTEGER, "7.0", 7),
            (INTEGER, Written("1e3"), 1000),
            (INTEGER, Written("9007199254740993.0"), 9007199254740993),
            (INTEGER, "9007199254740993.0", 9007199254740993),
            (INTEGER, str(BIG), BIG),
            (INTEGER, Written(f"{BIG}.0"), BIG),
            (NUMBER, "1.50", 1.5),
            (NUMBER, str(BIG), BIG),
            (BOOLEAN, "true", True),
            (BOOLEAN, "False", False),
            (NULL, "null", None),
            (either(INTEGER, NULL), "7", 7),
            (either(INTEGER, NULL), "None", None),
            ({"type": ["integer", "null"]}, "7", 7),
            ({"type": ["array", "null"], "items": INTEGER}, '["1"]', [1]),
            (either(list_of(INTEGER), NULL), '["1"]', [1]),
            (either(list_of(INTEGER), object_of(n=INTEGER)), '{"n": "1"}', {"n": 1}),
            ({"oneOf": [BOOLEAN, INTEGER]}, "1", 1),
            ({"oneOf": [BOOLEAN, INTEGER]}, "true", True),
            ({"enum": [1, 2, 3]}, "2", 2),
            ({"const": True}, "true", True),
            ({"allOf": [{"description": "How many"}, INTEGER]}, "7", 7),
            ({"allOf": [NUMBER, INTEGER]}, 7.0, 7),
            ({"$ref": "#/$defs/n"}, "7", 7),
            (list_of({"$ref": "#/$defs/tree"}), [{"n": "1", "kids": '[{"n": 2.0}]'}], [{"n": 1, "kids": [{"n": 2}]}]),
        ],
    )
    def test_it_is_what_it_stands_for(self, schema: Any, value: Any, read: Any) -> None:
        """At every depth, through references and alternatives, and with every digit."""
        tree = object_of(n=INTEGER, kids=list_of({"$ref": "#/$defs/tree"}))

        assert same(fitted(value, schema, **{"$defs": {"n": INTEGER, "tree": tree}}), read)

    @holds_for(
        ("schema", "value"),
        [
            (TEXT, "7"),
            (TEXT, '["a"]'),
            (TEXT, "null"),
            ({}, "7"),
            (True, "[1]"),
            (False, "[1]"),
            ({"description": "Anything"}, '{"a": 1}'),
            (either(TEXT, list_of(TEXT)), '["a"]'),
            ({"type": ["string", "integer"]}, "7"),
            ({"enum": ["1", 1]}, "1"),
            ({"enum": ["true", "false"]}, "true"),
            ({"$ref": "elsewhere.json"}, "7"),
            ({"$ref": "#/$defs/missing"}, "7"),
            (list_of(TEXT), "a, b"),
            (list_of(TEXT), '{"a": 1}'),
            (list_of(TEXT), '["a"] and more'),
            (INTEGER, "seven"),
            (INTEGER, "7.5"),
            (INTEGER, 7.5),
            (INTEGER, "007"),
            (INTEGER, "1,000"),
            (INTEGER, ""),
            (INTEGER, "null"),
            (INTEGER, "true"),
            (INTEGER, True),
            (BOOLEAN, "yes"),
            (BOOLEAN, "1"),
            (BOOLEAN, 1),
            (NUMBER, 7.0),
            (NUMBER, "1e400"),
            (NUMBER, "NaN"),
            (NUMBER, "0.10000000000000000555"),
            (either(INTEGER, NUMBER), 7.0),
            (TEXT, 7),
        ],
    )
    def test_what_is_not_certain_stays_as_it_is(self, schema: Any, value: Any) -> None:
        """A text is a text wherever one is admitted, and nothing is converted that loses a digit."""
        assert same(fitted(value, schema), value)

    def test_of_several_objects_the_one_that_is_meant_decides(self) -> None:
        """By the constants, the names and the required members that tell the alternatives apart."""
        count = {**object_of(kind={"const": "count"}, n=INTEGER), "required": ["kind", "n"]}
        words = {**object_of(kind={"const": "words"}, n=TEXT), "required": ["kind", "n"]}
        pet = either(count, words)

        assert fitted({"kind": "count", "n": "7"}, pet) == {"kind": "count", "n": 7}
        assert fitted({"kind": "words", "n": "7"}, pet) == {"kind": "words", "n": "7"}

    def test_alternatives_that_want_different_values_change_nothing(self) -> None:
        """Which one is meant would be a guess."""
        ambiguous = either(object_of(m=list_of(TEXT)), object_of(m=list_of(INTEGER)))

        assert fitted({"m": '["1"]'}, ambiguous) == {"m": '["1"]'}
        assert fitted({"m": '["a"]'}, ambiguous) == {"m": ["a"]}

    def test_a_strict_type_is_never_converted(self) -> None:
        """The application has declared that it takes nothing else; a list that holds it is still read."""

        class Strict(BaseModel, strict=True):
            n: int

        def count(n: Annotated[int, Field(strict=True)], several: list[Strict]) -> None: ...

        counting = tool(count)

        assert "strict" not in json.dumps(counting.parameters)
        for written in ({"n": "1", "several": []}, {"n": 1, "several": [{"n": "1"}]}):
            assert resolve_call(written, tool(count), name="count").fault is not None
        assert resolve_call({"n": 1, "several": '[{"n": 1}]'}, tool(count), name="count").fault is None

    @pytest.mark.parametrize(
        ("written", "admitted"),
        [
            ({"amount": True}, False),
            ({"amount": False}, False),
            ({"price": True}, False),
            ({"flag": 1}, False),
            ({"flag": 0.0}, False),
            ({"several": [1, True]}, False),
            ({"inner": {"n": True}}, False),
            ({"amount": 1, "price": 1, "flag": True, "several": [1], "inner": {"n": 0}, "either": True}, True),
            ({"either": 1, "anything": {"a": [True, 1]}}, True),
        ],
    )
    def test_booleans_and_numbers_are_told_apart(self, written: dict[str, Any], admitted: bool) -> None:
        """Python takes true for 1, so a call would run with an amount that nobody wrote."""

        class Inner(BaseModel):
            n: int

        def pay(
            amount: int = 5,
            price: float = 5,
            flag: bool = False,
            several: list[int] | None = None,
            inner: Inner | None = None,
            either: bool | int = 0,
            anything: Any = None,
        ) -> None: ...

        assert (resolve_call(written, tool(pay), name="pay").fault is None) is admitted

    def test_an_exact_number_stays_exact(self) -> None:
        """A text is admitted where a decimal number is wanted, so it is read with every digit."""

        def pay(amount: Decimal) -> None: ...

        read = tool(pay).arguments.values('{"amount": "0.10000000000000000555"}')

        assert read == {"amount": Decimal("0.10000000000000000555")}


class TestHostileInput:
    """Schemas and arguments may come from anywhere."""

    def test_a_schema_that_doubles_its_parts_takes_no_time(self) -> None:
        """Its value is left to the check."""
        parts = {f"p{n}": either(*[object_of(a={"$ref": f"#/$defs/p{n + 1}"})] * 2) for n in range(60)}
        value: Any = "7"
        for _ in range(60):
            value = {"a": value}
        began = time.process_time()

        fitted(value, {"$ref": "#/$defs/p0"}, **{"$defs": {**parts, "p60": INTEGER}})

        assert time.process_time() - began < 1

    def test_a_schema_that_is_its_own_part_ends(self) -> None:
        """It says nothing about the value."""
        circle = {"a": {"$ref": "#/$defs/b"}, "b": either({"$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#/$defs/b"}]})}

        assert fitted("7", {"$ref": "#/$defs/a"}, **{"$defs": circle}) == "7"

    @pytest.mark.parametrize("depth", [50, 150])
    def test_a_deep_value_is_read_or_left(self, depth: int) -> None:
        """To a depth that models never reach it is read, beyond that it is left to the check."""
        tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
        value: Any = []
        for _ in range(depth):
            value = [value]

        assert fitted(value, {"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}}) == value

    def test_texts_within_texts_end(self) -> None:
        """Each of them is shorter than the one around it."""
        tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
        value: Any = []
        for _ in range(12):
            value = json.dumps([value])

        read = fitted(value, {"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}})

        assert json.dumps(read) == "[" * 13 + "]" * 13

    @pytest.mark.slow
    def test_a_long_list_is_read_at_once(self) -> None:
        """The work is that of reading it."""
        began = time.process_time()

        read = fitted(["7"] * 100_000, list_of(INTEGER))

        assert read == [7] * 100_000
        assert time.process_time() - began < 3


# --- laws

_SCALARS: SearchStrategy[Any] = st.sampled_from([INTEGER, NUMBER, TEXT, BOOLEAN])
_NAMES = st.sampled_from(["a", "b", "c"])


def _further(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    objects = st.dictionaries(_NAMES, inner, max_size=3).map(
        lambda found: {**object_of(**found), "required": list(found), "additionalProperties": False}
    )
    alternatives = st.lists(inner, min_size=2, max_size=3).map(lambda found: either(*found))
    return st.one_of(inner.map(list_of), objects, alternatives, inner.map(lambda found: either(found, NULL)))


SCHEMAS = st.recursive(_SCALARS, _further, max_leaves=6)
CALLS = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(object_of(it=schema)), values_of(schema)))
JSON: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def _encoded(value: Any, choose: Callable[[], bool], *, texts: bool = True) -> Any:
    """The value with some of its parts written as texts, and of these texts themselves only if `texts` says so."""
    if isinstance(value, dict):
        value = {name: _encoded(part, choose, texts=texts) for name, part in value.items()}
    elif isinstance(value, list):
        value = [_encoded(part, choose, texts=texts) for part in value]
    return json.dumps(value) if (texts or not isinstance(value, str)) and choose() else value


class TestLaws:
    """What holds for every schema and every value."""

    @given(CALLS)
    def test_a_value_that_fits_stays_as_it_is(self, call: tuple[dict[str, Any], Any]) -> None:
        """Only a float that is an integer becomes one, which is equal."""
        schema, value = call
        text = json.dumps({"it": value})

        read = normalized(text, schema)

        assert read.data == {"it": value}
        assert read.text == text or "." in text or "e" in text

    @given(st.tuples(SCHEMAS, JSON), st.data())
    def test_once_is_enough(self, given: tuple[dict[str, Any], Any], data: st.DataObject) -> None:
        """Whatever the model wrote, what is stored is read as it is."""
        schema, value = object_of(it=given[0]), _encoded(given[1], lambda: data.draw(st.booleans()))

        once = normalized(json.dumps({"it": value}), schema)

        assert normalized(once.text, schema) == once
        assert json.loads(once.text) == once.data

    @given(st.dictionaries(_NAMES, JSON), st.integers(0, 4))
    def test_what_is_encoded_several_times_comes_out_equal(self, value: dict[str, Any], times: int) -> None:
        """Servers do that."""
        text = json.dumps(value)
        for _ in range(times):
            text = json.dumps(text)

        assert read_object(text).data == value

    @pytest.mark.slow
    @given(st.data())
    def test_a_function_and_its_schema_agree(self, data: st.DataObject) -> None:
        """However the parts of the arguments are encoded, both take the same values."""

        class Point(BaseModel):
            x: int
            y: float
            kind: Literal["p"]

        def draw(flags: list[bool], counts: dict[str, int], point: Point | None, size: int | None) -> None: ...

        by_types = tool(draw)
        by_schema = tool(lambda **given: None, name="draw", parameters=by_types.parameters)
        value = data.draw(values_of(by_types.parameters))
        written = json.dumps(_encoded(value, lambda: data.draw(st.booleans()), texts=False))

        assert by_types.arguments.accepted(written) == by_schema.arguments.accepted(written)
        assert json.loads(by_types.arguments.accepted(written)) == value
