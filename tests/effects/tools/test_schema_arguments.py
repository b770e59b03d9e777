"""A JSON schema in place of types: it goes to the model unchanged, calls are checked against it, and the function gets
what the model wrote."""

from __future__ import annotations

import copy
import functools
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import ConfigurationError, ToolContext, tool
from turnwise.effects.tools.context import Question
from turnwise.effects.tools.normalization import InvalidArguments
from turnwise.effects.tools.tool import AnyTool
from turnwise.states.values.messages import ToolResult
from turnwise.states.values.questions import QuestionOption, UserQuestion

from ...support.cases import holds_for
from ...support.operations import LINEAR, growth
from ...support.tools import error, outcome_of, resolve_call

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "Search",
    "properties": {
        "zone": {"$ref": "#/definitions/zone"},
        "from": {"type": "string", "format": "date", "default": "2030-01-01"},
        "class": {"enum": ["a", "b"], "x-vendor": {"b": 1, "a": 2}},
        "page-size": {"type": ["integer", "null"], "minimum": 1, "maximum": 10, "default": 5},
        "filter": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["key"]}]},
    },
    "required": ["zone"],
    "additionalProperties": False,
    "definitions": {"zone": {"type": "string", "pattern": "^[a-z]+$"}},
}


def schema(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": properties}


def everything(**given: Any) -> dict[str, Any]:
    """Return what it was given."""
    return given


def made(parameters: Any = SCHEMA, function: Any = everything) -> AnyTool:
    """A tool with this schema."""
    return tool(function, name="search", parameters=parameters)


def fault(arguments: Any, parameters: Any = SCHEMA, function: Any = everything) -> str | None:
    """What is wrong with a call that has these arguments."""
    return resolve_call(arguments, made(parameters, function), name="search").fault


class TestTheSchema:
    """It is the application's."""

    def test_it_goes_to_the_model_unchanged(self) -> None:
        """With every keyword, in its order; and what the application does to its own copy later changes nothing."""
        given = copy.deepcopy(SCHEMA)

        search = tool(everything, name="search", description="Search it.", parameters=given)
        given["properties"].clear()

        function = search.definition()["function"]
        assert json.dumps(function["parameters"]) == json.dumps(SCHEMA)
        assert (function["name"], function["description"]) == ("search", "Search it.")

    @holds_for(
        ("parameters", "sentence"),
        [
            (7, "The schema of everything must be a dict."),
            ([], "The schema of everything must be a dict."),
            ({}, 'The schema of everything must describe an object: its "type" must be "object".'),
            ({"type": "array"}, 'The schema of everything must describe an object: its "type" must be "object".'),
            ({"type": "object", "x": {1, 2}}, "The schema of everything cannot be written as JSON."),
            ({"type": "object", "x": float("nan")}, "The schema of everything cannot be written as JSON."),
            ({"type": "object", "x": "\ud83c"}, "The schema of everything cannot be written as JSON."),
            (
                {"type": "object", "properties": {1: {"type": "string"}}},
                "The schema of everything is not JSON: names are texts, and arrays are lists.",
            ),
            (
                schema(day={"examples": [(1, 2)]}),
                "The schema of everything is not JSON: names are texts, and arrays are lists.",
            ),
            (
                schema(day={"type": "date"}),
                "The schema of everything is not valid at properties.day.type: "
                "\"date\" is not valid under any of the schemas listed in the 'anyOf' keyword.",
            ),
            (
                schema(day={"pattern": "["}),
                'The schema of everything is not valid at properties.day.pattern: "[" is not a "regex".',
            ),
            (
                {"type": 3},
                "The schema of everything is not valid at type: "
                "3 is not valid under any of the schemas listed in the 'anyOf' keyword.",
            ),
            (
                {"type": "object", "$schema": "https://example.com/mine"},
                "The schema of everything is of an unknown dialect: https://example.com/mine.",
            ),
            ({"type": "object", "$schema": 7}, "The schema of everything is of an unknown dialect: 7."),
            (
                schema(day={"$ref": "https://example.com/day.json"}),
                "The schema of everything refers to https://example.com/day.json, which is not in it.",
            ),
            (
                schema(day={"$ref": "#/$defs/day"}),
                "The schema of everything refers to #/$defs/day, which is not in it.",
            ),
            (
                {**schema(day={"$ref": "#/elsewhere/day"}), "elsewhere": {"day": {"$ref": "file:///etc/passwd"}}},
                "The schema of everything refers to file:///etc/passwd, which is not in it.",
            ),
            (
                {"type": "object", "$schema": "http://json-schema.org/draft-03/schema#"},
                "The schema of everything is of an unknown dialect: http://json-schema.org/draft-03/schema#.",
            ),
            (
                schema(day={"pattern": "(a{1000}){1000}"}),
                'The schema of everything is not valid at properties.day.pattern: "(a{1000}){1000}" is not a "regex".',
            ),
            (
                functools.reduce(lambda inner, _: {"type": "object", "not": inner}, range(300), {}),
                "The schema of everything is nested too deeply.",
            ),
        ],
    )
    def test_an_unfit_schema_is_refused(self, parameters: Any, sentence: str) -> None:
        """When the tool is made, with the place and the cause."""
        with pytest.raises(ConfigurationError) as refused:
            tool(everything, parameters=parameters)

        assert refused.value.sentence == sentence

    def test_a_circle_of_references_says_nothing(self) -> None:
        """It ends where it comes back to the same value."""
        circle = {"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}
        parts = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a", "required": ["x"]}}

        assert fault({"x": 1}, {**circle, "$defs": parts}) is None
        assert fault({}, {**circle, "$defs": parts}) == "Invalid input: x: Field required"

    def test_a_schema_that_contains_itself_is_refused(self) -> None:
        """Not by a reference, but as an object of Python."""
        endless: dict[str, Any] = {"type": "object"}
        endless["properties"] = {"again": endless}

        with pytest.raises(ConfigurationError, match="cannot be written as JSON"):
            tool(everything, parameters=endless)

    @pytest.mark.slow
    def test_a_schema_that_doubles_its_parts_is_refused(self) -> None:
        """A check would take hours. Where only some values are checked by them, calls with these values are faults."""
        doubling = {f"d{level}": {"allOf": 2 * [{"$ref": f"#/$defs/d{level + 1}"}]} for level in range(40)}
        parts = {"$defs": {**doubling, "d40": {}}, "type": "object"}
        first = {"$ref": "#/$defs/d0"}

        with pytest.raises(ConfigurationError, match="takes too long to check"):
            made({**parts, "allOf": [first]})
        assert (
            fault({"a": 1}, {**parts, "properties": {"a": first}})
            == "Invalid input: the arguments could not be checked"
        )

    @pytest.mark.slow
    def test_a_long_value_may_follow_many_references(self) -> None:
        """As many as it has parts; a call has at most a million characters."""
        items = {"type": "array", "items": {"$ref": "#/$defs/item"}}
        parameters = {**schema(items=items), "$defs": {"item": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}

        assert fault({"items": [*range(1_000, 120_000)]}, parameters) is None

    def test_nothing_is_ever_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither when the tool is made nor when a call is checked. A property may be called `$ref`, and examples hold
        anything."""

        def refuse(*given: Any, **options: Any) -> Any:
            raise AssertionError("something was fetched")

        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)
        parameters = {**schema(**{"$ref": {"type": "string"}}), "examples": [{"$ref": "https://example.com/x"}]}

        assert fault({"$ref": "https://example.com/x"}, parameters) is None
        with pytest.raises(ConfigurationError, match="which is not in it"):
            made(schema(day={"$ref": "https://json-schema.org/draft/2030-01/schema"}))

    @pytest.mark.parametrize(
        ("dialect", "is_exclusive"),
        [
            ("http://json-schema.org/draft-04/schema#", True),
            ("http://json-schema.org/draft-06/schema#", False),
            ("http://json-schema.org/draft-07/schema", False),
            ("https://json-schema.org/draft/2019-09/schema", False),
            ("https://json-schema.org/draft-07/schema#", False),
            ("https://json-schema.org/draft/2020-12/schema", False),
        ],
    )
    def test_the_dialect_is_the_one_it_names(self, dialect: str, is_exclusive: bool) -> None:
        """In draft 4 `exclusiveMinimum` is true or false, later it is a number."""
        limit = {"minimum": 1, "exclusiveMinimum": True} if is_exclusive else {"exclusiveMinimum": 1}

        assert fault({"n": 1}, {"$schema": dialect, **schema(n=limit)}) is not None
        assert fault({"n": 2}, {"$schema": dialect, **schema(n=limit)}) is None

    def test_a_schema_may_refer_to_its_own_parts(self) -> None:
        """By a pointer, an anchor, or its own address; also in a circle that ends with the value."""
        tree = {"type": "object", "properties": {"branches": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
        parameters = {
            "$id": "https://example.com/plant",
            **schema(tree={"$ref": "#/$defs/tree"}, leaf={"$ref": "#leaf"}, again={"$ref": "plant#/$defs/tree"}),
            "$defs": {"tree": {**tree, "additionalProperties": False}, "leaf": {"$anchor": "leaf", "type": "integer"}},
        }

        assert fault({"tree": {"branches": [{"branches": []}]}, "leaf": 1, "again": {}}, parameters) is None
        assert fault({"tree": {"branches": [{"x": 1}]}}, parameters) == (
            "Invalid input: tree.branches.0.x: Extra inputs are not permitted"
        )
        assert fault({"leaf": "x"}, parameters) == 'Invalid input: leaf: Input should be of the type "integer"'


class TestCalls:
    """The function gets what the model wrote, or the model reads what is wrong."""

    async def test_nothing_is_filled_in_or_converted(self) -> None:
        """Names that are keywords of Python, or no names at all there, are arguments like any other."""
        written = '{"zone": "a", "class": "b", "from": "no date", "page-size": null}'

        assert await outcome_of(made(), written) == ToolResult(
            text='{"zone":"a","class":"b","from":"no date","page-size":null}'
        )
        assert await outcome_of(made(), '{"zone": "a"}') == ToolResult(text='{"zone":"a"}')
        assert await outcome_of(made(schema(n={"type": "number"})), '{"n": 1.0}') == ToolResult(text='{"n":1.0}')

    @holds_for(
        ("arguments", "sentence"),
        [
            ({}, "zone: Field required"),
            ({"zone": 7}, 'zone: Input should be of the type "string"'),
            ({"zone": "A"}, 'zone: Input should match the pattern "^[a-z]+$"'),
            ({"zone": "a", "class": "secret"}, 'class: Input should be one of "a", "b"'),
            ({"zone": "a", "page-size": 11}, "page-size: Input should be at most 10"),
            ({"zone": "a", "page-size": "x"}, 'page-size: Input should be of the type "integer", "null"'),
            ({"zone": "a", "filter": {}}, "filter.key: Field required"),
            ({"zone": "a", "wine": "red"}, "wine: Extra inputs are not permitted"),
            ({"w" * 100: 1, "zone": "a"}, f"{'w' * 59}…: Extra inputs are not permitted"),
            (
                {"class": 1, "page-size": 0},
                'class: Input should be one of "a", "b"; page-size: Input should be at least 1; zone: Field required',
            ),
        ],
    )
    def test_arguments_that_do_not_fit_are_a_fault(self, arguments: Any, sentence: str) -> None:
        """Each field is named with what the schema wants, and values are not repeated."""
        assert fault(arguments) == f"Invalid input: {sentence}"

    @pytest.mark.parametrize("arguments", ["{", "[]", "3", '{"zone": NaN}', '{"zone": 1e400}', "[" * 5_000])
    def test_arguments_that_are_no_object_are_a_fault(self, arguments: str) -> None:
        """As for every tool."""
        told = fault(arguments)

        assert told is not None
        assert told.startswith("Invalid input: the arguments are not a JSON object")

    @pytest.mark.slow
    def test_a_fault_is_of_bounded_length(self) -> None:
        """Also where thousands of items are wrong; at most five are told, and of very many one."""
        parameters = schema(items={"type": "array", "items": {"type": "integer"}})

        for count, told_faults in ((5_000, 5), (100_000, 1)):
            told = fault({"items": ["x"] * count}, parameters)

            assert told is not None
            assert told.count("Input should be of the type") == told_faults
            assert len(told) <= 500

    @holds_for(
        ("part", "value", "sentence"),
        [
            ({"const": 1}, 2, "Input should be 1"),
            ({"not": {}}, 2, "Input is not allowed"),
            (False, 2, "Input is not permitted"),
            ({"uniqueItems": True}, [1, 1], "Input should not have the same item twice"),
            ({"contains": {"const": 1}}, [2], "Input should contain an item of another kind"),
            ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 3, "Input should fit exactly one of the alternatives"),
            ({"multipleOf": 0.5}, 0.3, "Input should be a multiple of 0.5"),
            ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "it.b: Field required"),
            ({"contentEncoding": "base64", "minLength": 9}, "b", "Input should have at least 9 characters"),
            ({"additionalProperties": False}, {"a": 1}, "it.a: Extra inputs are not permitted"),
            ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "it: Input should have at most 1 characters"),
            ({"maximum": 2**70}, 2**70 + 1, f"Input should be at most {2**70}"),
            ({"type": ["null", "integer"]}, 1.5, 'Input should be of the type "integer", "null"'),
            (
                {"type": "object", "unevaluatedProperties": False},
                {"a": 1},
                "it.a: Extra inputs are not permitted",
            ),
            (
                {"patternProperties": {"^x": {}}, "additionalProperties": False},
                {"x1": 1, "y1": 1},
                "y1: Extra inputs are not permitted",
            ),
        ],
    )
    def test_every_keyword_has_a_sentence(self, part: Any, value: Any, sentence: str) -> None:
        """Also those whose own messages would repeat the value."""
        told = fault({"it": value}, schema(it=part))

        assert told is not None
        assert told.endswith(sentence)
        assert told.startswith("Invalid input: it") or part is False

    @holds_for(
        ("items", "are_unique"),
        [
            ([1, True, "1", [1], [True], {"a": 1}, {"a": True}, None, False, 0], True),
            ([1, 1.0], False),
            ([[1, {"a": 2}], [1.0, {"a": 2.0}]], False),
            ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
            ([{"a": [1, 2]}, {"a": [2, 1]}], True),
        ],
    )
    @holds_for("dialect", ["http://json-schema.org/draft-07/schema#", None])
    def test_items_are_unique_as_json_values(self, items: Any, are_unique: bool, dialect: str | None) -> None:
        """1 is 1.0, but not true; the order of an object's members does not count."""
        unique = schema(it={"uniqueItems": True}) | ({} if dialect is None else {"$schema": dialect})

        told = fault({"it": items}, unique)

        assert told == (None if are_unique else "Invalid input: it: Input should not have the same item twice")

    def test_a_long_array_is_checked_at_once(self) -> None:
        """Not by comparing each item with each other one, which would stop every conversation of the process."""
        assert fault({"it": [{"n": n} for n in range(70_000)]}, schema(it={"uniqueItems": True})) is None

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        )
    )
    def test_any_value_is_checked_or_passed_on(self, value: Any) -> None:
        """Without an exception; a value that fits arrives unchanged."""
        search = made(schema(it={"type": ["object", "array", "string"], "maxLength": 3, "uniqueItems": True}))

        call = resolve_call({"it": value}, search, name="search")

        if call.fault is None:
            assert search.arguments.values(call.raw_arguments) == json.loads(call.raw_arguments)
        else:
            call.fault.encode()


class TestFunctions:
    """What the function itself can take."""

    async def test_a_context_is_filled_in(self) -> None:
        """A parameter of the type ToolContext is not the model's. Other types of the function do not matter."""

        def pay(amount: Any, where: ToolContext, key: int = 3) -> str:
            return f"{amount} {where.key} {key}"

        paying = made(schema(amount={}), pay)

        assert await outcome_of(paying, '{"amount": "many"}') == ToolResult(text="many c/3 3")
        assert await outcome_of(paying, '{"amount": 1, "key": 4}') == ToolResult(text="1 c/3 4")
        assert await outcome_of(paying, '{"amount": 1, "where": 4}') == error(
            "Invalid input: where: Extra inputs are not permitted"
        )

    def test_a_context_must_not_have_the_name_of_a_property(self) -> None:
        """It could be filled only once."""

        def pay(where: ToolContext) -> None: ...

        with pytest.raises(ConfigurationError) as refused:
            made(schema(where={}), pay)

        assert refused.value.sentence == (
            "The parameter where of pay is filled by the engine, so the schema cannot describe it."
        )

    @pytest.mark.parametrize(
        ("function", "parameters", "sentence"),
        [
            (lambda a: a, schema(a={}, b={}), "The function <lambda> does not take b, which its schema describes."),
            (lambda a, /: a, schema(a={}), "The function <lambda> does not take a, which its schema describes."),
            (
                lambda a, b: a,
                schema(a={}),
                "The parameter b of <lambda> has no default, and its schema does not describe it.",
            ),
            (
                functools.partial(everything, a=1),
                schema(a={}, b={}),
                "The parameter a of everything has been filled, so the schema cannot describe it.",
            ),
        ],
    )
    def test_a_function_that_does_not_fit_its_schema_is_refused(
        self, function: Any, parameters: Any, sentence: str
    ) -> None:
        """When the tool is made."""
        with pytest.raises(ConfigurationError) as refused:
            made(parameters, function)

        assert refused.value.sentence == sentence

    async def test_a_call_that_the_function_cannot_take_is_a_fault(self) -> None:
        """The schema allows more than the function takes: a name that it does not have, none where it needs one."""

        def pay(amount: int) -> str:
            return f"{amount}"

        paying = made({"type": "object", "properties": {"amount": {"type": "integer"}}}, pay)

        assert await outcome_of(paying, "{}") == error("Invalid input: amount: Field required")
        assert await outcome_of(paying, '{"amount": 1, "tip": 1}') == error(
            "Invalid input: tip: Extra inputs are not permitted"
        )

    async def test_every_kind_of_function_takes_a_schema(self) -> None:
        """Partials, methods, objects, lambdas: whatever takes arguments by name."""
        text = schema(a={"type": "string"})

        class Shop:
            def order(self, a):  # type: ignore[no-untyped-def]
                return f"ordered {a}"

            def __call__(self, **given: Any) -> str:
                return f"called with {given}"

            @tool(parameters=text)
            def offer(self, **given: Any) -> str:
                return f"offered {given}"

        kinds = {
            Shop().order: "ordered x",
            Shop(): "called with {'a': 'x'}",
            functools.partial(everything, b=1): '{"b":1,"a":"x"}',
            (lambda a: a): "x",
        }
        for function, result in kinds.items():
            assert await outcome_of(made(text, function), '{"a": "x"}') == ToolResult(text=result)
        assert await outcome_of(Shop().offer, '{"a": "x"}') == ToolResult(text="offered {'a': 'x'}")

    async def test_a_tool_with_a_schema_may_ask(self) -> None:
        """All else is as for every tool: options, acts, results."""
        options = (QuestionOption(label="One"), QuestionOption(label="Two"))
        question = Question((UserQuestion(question="How many?", options=options),))
        asks = tool(
            lambda **given: question,
            name="ask",
            parameters={"type": "object"},
            exclusive=True,
            acts=["question"],
        )

        assert await outcome_of(asks) == question


def _anchored(count: int) -> dict[str, Any]:
    """A schema whose parts have names, and refer to each other by them."""
    parts = {f"d{number}": {"$anchor": f"a{number}"} for number in range(count)}
    return {"type": "object", "$defs": parts, "properties": {f"p{n}": {"$ref": f"#a{n}"} for n in range(count)}}


def _addressed(count: int) -> dict[str, Any]:
    """A schema whose parts have addresses."""
    address = "https://example.com/{}"
    parts = {f"d{number}": {"$id": address.format(number)} for number in range(count)}
    properties = {f"p{number}": {"$ref": address.format(number)} for number in range(count)}
    return {"type": "object", "$defs": parts, "properties": properties}


def _listing(count: int) -> dict[str, Any]:
    """A schema of an older dialect, whose lists of values must not repeat one."""
    values = [{"number": number} for number in range(count)]
    dialect = "http://json-schema.org/draft-04/schema#"
    return {"$schema": dialect, "type": "object", "properties": {"one": {"enum": values}}}


def _nested(count: int) -> dict[str, Any]:
    """A schema that looks for unevaluated properties at each of its levels."""
    nested: dict[str, Any] = {"type": "object", "unevaluatedProperties": False}
    for _ in range(count):
        nested = {"type": "object", "unevaluatedProperties": False, "allOf": [nested]}
    return nested


_NAMES_OUT_OF_A_LIST = {"type": "object", "propertyNames": {"enum": [f"known{number}" for number in range(2_000)]}}


@pytest.mark.slow
class TestCost:
    """Schemas and arguments come from outside, so what it costs to check them is bounded."""

    @pytest.mark.parametrize("made", [_anchored, _addressed, _listing])
    def test_that_of_a_schema_grows_as_the_schema_does(self, made: Callable[[int], dict[str, Any]]) -> None:
        """Whatever its parts are called."""
        assert growth(made, lambda schema: tool(everything, parameters=schema), 40) < LINEAR

    def test_that_of_arguments_grows_as_they_do(self) -> None:
        """Also where each of their names is looked for in a long list, and none is in it."""
        arguments = tool(everything, parameters=_NAMES_OUT_OF_A_LIST).arguments

        def refuse(text: str) -> None:
            with pytest.raises(InvalidArguments, match="should be one of"):
                arguments.values(text)

        assert growth(lambda count: json.dumps(dict.fromkeys(map(str, range(count)))), refuse, 100) < LINEAR

    @holds_for(
        ("part", "value"),
        [
            ({"propertyNames": {"anyOf": [{"type": "array"} for _ in range(5_000)]}}, dict.fromkeys("abcdefgh" * 99)),
            ({"items": {"anyOf": [{"type": "array"} for _ in range(5_000)]}}, [*range(1_000)]),
            ({"items": {"enum": [{"n": n} for n in range(5_000)]}}, [{"n": n} for n in range(5_000)]),
            ({"items": {"pattern": "^(?=x?)(a|aa|a+)+(?<!b)$"}}, ["a" * 40 + "!"] * 20_000),
            ({"$ref": "#/$defs/doubling"}, functools.reduce(lambda inner, _: [inner], range(60), 1)),
        ],
    )
    def test_a_check_that_takes_too_long_is_given_up(self, part: dict[str, Any], value: Any) -> None:
        """The model is told that the arguments could not be checked, and the tool does not run."""
        doubling = {"anyOf": [{"items": {"$ref": "#/$defs/doubling"}}, {"items": {"$ref": "#/$defs/doubling"}}]}
        told = fault({"it": value}, {**schema(it=part), "$defs": {"doubling": doubling}})

        assert told == "Invalid input: the arguments could not be checked" or isinstance(value, dict)

    @holds_for("pattern", ["^(a+)+$", "(a|aa)+$", "^(?=x?)(a|aa|a+)+(?<!b)$", "(?:a?){500}a{500}$"])
    def test_a_pattern_ends(self, pattern: str) -> None:
        """Also one that others would need hours for, and wherever it stands."""
        text = "a" * 2_000 + "!"

        assert fault({"it": text}, schema(it={"pattern": pattern})) is not None
        told = fault({"it": {text: 1}}, schema(it={"patternProperties": {pattern: False}}))
        assert told is None or told.endswith("takes too long to match with the pattern")

    def test_each_value_in_a_long_list_is_no_error_of_its_own(self) -> None:
        """The errors would hold the list as often as there are values, and fill the memory."""
        permitted = [f"known{number}" for number in range(5_000)]
        unknown = [f"other{number}" for number in range(20_000)]
        told = fault({"it": unknown}, schema(it={"items": {"enum": permitted}}))

        assert told is not None
        assert told.startswith('Invalid input: it.0: Input should be one of "known0", "known1"')

    def test_a_schema_that_takes_too_long_is_refused(self) -> None:
        """Each level looks once more at all those below it."""
        with pytest.raises(ConfigurationError, match="takes too long to check"):
            tool(everything, parameters=_nested(60))

    def test_parts_in_another_dialect_are_counted_too(self) -> None:
        """A part that names its dialect is checked as the whole is."""
        doubling = {f"d{level}": {"allOf": 2 * [{"$ref": f"#/$defs/d{level + 1}"}]} for level in range(40)}
        dialect = "https://json-schema.org/draft/2020-12/schema"
        first = {"$schema": dialect, "$ref": "#/$defs/d0"}
        parameters = {"type": "object", "$defs": {**doubling, "d40": {}}, "properties": {"deep": first}}
        arguments = tool(everything, parameters=parameters).arguments

        with pytest.raises(InvalidArguments, match="could not be checked"):
            arguments.values('{"deep": 1}')

    def test_an_address_that_is_none_is_a_fault_of_the_schema(self) -> None:
        """It is refused in a sentence, like every other fault."""
        with pytest.raises(ConfigurationError, match="The schema of everything is not valid: Invalid URI"):
            tool(everything, parameters=schema(day={"$id": "http://[day"}))
