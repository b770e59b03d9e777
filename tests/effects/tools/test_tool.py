"""A function becomes a tool: its name, description and parameters are those of the function."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.tool import tool
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.messages import ToolResult

from ...support.cases import holds_for
from ...support.tools import Party, Point, Size, error, find_table, outcome_of, untyped

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Tree(BaseModel):
    """A type that contains itself."""

    label: str
    branches: list[Tree] = []


class TestMakingATool:
    """Name, description and arguments come from the function."""

    def test_a_tool_is_offered_as_openai_function_tools_are(self) -> None:
        """In the definition types are inlined, titles and null defaults are left out, and nothing extra is allowed."""
        assert find_table.definition() == {
            "type": "function",
            "function": {
                "name": "find_table",
                "description": "Look for a free table.\n\nAsk for one day at a time.",
                "parameters": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["cuisine", "party"],
                    "properties": {
                        "cuisine": {"type": "string", "description": "What to eat"},
                        "party": {
                            "type": "object",
                            "description": "Who comes.",
                            "required": ["adults"],
                            "properties": {
                                "adults": {"type": "integer"},
                                "children": {"type": "integer", "default": 0},
                            },
                        },
                        "day": {"type": "string", "format": "date"},
                        "round": {"type": "integer", "default": 1},
                    },
                },
            },
        }

    async def test_a_tool_can_still_be_called_like_the_function(self) -> None:
        """The application's own code and tests need no engine to call it."""
        assert await find_table("sushi", Party(adults=2)) == "sushi for 2 on None, round 1"

    def test_a_tool_has_the_attributes_of_the_function(self) -> None:
        """Those that functools.wraps copies."""

        def double(n: int) -> int:
            """Twice as much."""
            return 2 * n

        double.colour = "red"  # type: ignore[attr-defined]

        made: Any = tool(double)

        assert (made.__name__, made.__doc__, made.__module__) == ("double", "Twice as much.", __name__)
        assert made.__wrapped__ is double
        assert made.colour == "red"
        assert inspect.signature(made) == inspect.signature(double)

    def test_declarations_are_attributes_of_the_tool(self) -> None:
        """By default a tool is never run twice, may run in parallel, asks nothing, and has a minute."""

        def plain() -> None: ...

        made = tool(plain)
        declared = tool(name="ask", crash="idempotent", exclusive=True, acts=["question"], timeout=3)(plain)

        assert (made.crash, made.exclusive, made.acts, made.timeout) == ("at_most_once", False, (), 60.0)
        assert (declared.name, declared.crash, declared.exclusive) == ("ask", "idempotent", True)
        assert (declared.acts, declared.timeout) == (("question",), 3)

    def test_a_tool_without_parameters_takes_an_empty_object(self) -> None:
        """Its schema is that of an object, because providers refuse any other."""

        def now() -> None: ...

        assert tool(now).parameters == {"type": "object", "properties": {}, "additionalProperties": False}

    def test_the_context_is_not_offered_to_the_model(self) -> None:
        """A parameter of type ToolContext is left out of the schema, also one that may be None."""

        def note(text: str, where: ToolContext, also: ToolContext | None = None) -> None: ...

        assert list(tool(note).parameters["properties"]) == ["text"]

    def test_types_of_the_defining_function_are_found(self) -> None:
        """Annotations that are strings may use names that are visible where the tool is defined."""

        class Wine(BaseModel):
            grape: Literal["red", "white"]

        @tool
        def pour(wine: Wine) -> None: ...

        (wine,) = pour.parameters["properties"].values()
        assert wine["properties"] == {"grape": {"type": "string", "enum": ["red", "white"]}}

    def test_a_return_type_need_not_exist_when_the_program_runs(self) -> None:
        """Only the types of parameters are needed."""

        @tool
        def price() -> OnlyForTypeCheckers:
            raise NotImplementedError

        assert price.name == "price"

    def test_a_type_that_contains_itself_is_described_by_reference(self) -> None:
        """All other types are described where they are used."""

        def plant(tree: Tree) -> None: ...

        schema = tool(plant).parameters

        assert schema["properties"] == {"tree": {"$ref": "#/$defs/Tree"}}
        assert list(schema["$defs"]) == ["Tree"]

    def test_parameters_may_have_the_names_of_pydantic_attributes(self) -> None:
        """A parameter may be called `json`, `schema` or `_private`."""

        def keep(json: str, schema: int, model_config: str, _private: bool, self_: str = "") -> None: ...

        names = list(tool(keep).parameters["properties"])

        assert names == ["json", "schema", "model_config", "_private", "self_"]

    async def test_a_default_that_json_cannot_express_is_still_the_default(self) -> None:
        """It is left out of the schema."""
        secret = object()

        def keep(it: Annotated[Any, Field(description="anything")] = secret) -> bool:
            return it is secret

        assert tool(keep).parameters["properties"] == {"it": {"description": "anything"}}
        assert await outcome_of(keep) == ToolResult(text="true")

    async def test_a_default_may_be_a_field_of_pydantic(self) -> None:
        """`n: int = Field(3, description=…)`."""

        def count(n: int = Field(3, description="how many")) -> int:
            return n

        (n,) = tool(count).parameters["properties"].values()
        assert n == {"type": "integer", "default": 3, "description": "how many"}
        assert await outcome_of(count) == ToolResult(text="3")

    def test_pydantic_describes_the_types(self) -> None:
        """Enums, dataclasses (without extra fields, like the arguments) and unions; infinite defaults are left out."""

        def draw(size: Size, at: Point | None = None, n: int | str | None = None, most: float = math.inf) -> None: ...

        assert tool(draw).parameters["properties"] == {
            "size": {
                "type": "string",
                "enum": ["big"],
                "description": "A text that is also a member of an enumeration.",
            },
            "at": {
                "type": "object",
                "description": "A value that JSON knows only by its fields.",
                "additionalProperties": False,
                "required": ["x", "y"],
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
            },
            "n": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "most": {"type": "number"},
        }

    async def test_a_parameter_may_have_another_name_for_the_model(self) -> None:
        """`from` cannot be a parameter in Python."""

        def since(from_: Annotated[str, Field(alias="from")]) -> str:
            return from_

        assert list(tool(since).parameters["properties"]) == ["from"]
        assert await outcome_of(since, '{"from": "May"}') == ToolResult(text="May")

    async def test_a_bound_method_is_a_tool(self) -> None:
        """`self` is not a parameter of the tool."""

        class Desk:
            async def ring(self, times: int) -> str:
                """Ring the bell."""
                return "ding" * times

        made = tool(Desk().ring)

        assert (made.name, made.description) == ("ring", "Ring the bell.")
        assert await outcome_of(made, '{"times": 2}') == ToolResult(text="dingding")

    async def test_a_partial_is_a_tool_without_the_parameters_that_it_fills(self) -> None:
        """The model can neither see nor change their values."""

        def book(place: str, time: str) -> str:
            """Book it."""
            return f"{place} at {time}"

        made = tool(functools.partial(book, place="Sakura"))

        assert (made.name, made.description, list(made.parameters["properties"])) == ("book", "Book it.", ["time"])
        assert await outcome_of(made, '{"time": "7"}') == ToolResult(text="Sakura at 7")
        assert await outcome_of(made, '{"time": "7", "place": "x"}') == error(
            "Invalid input: place: Extra inputs are not permitted"
        )


def by_position(day: str, /) -> None: ...  # noqa: D103
def any_number(*days: str) -> None: ...  # noqa: D103
def any_name(**days: str) -> None: ...  # noqa: D103
def calls_back(then: Callable[[], None]) -> None: ...  # noqa: D103
def of_no_known_type(amount: OnlyForTypeCheckers) -> None: ...  # noqa: D103
def unfit(n: int, thing: threading.Event) -> None: ...  # noqa: D103
def generates(n: int) -> Iterator[int]:  # noqa: D103
    yield n


ILLEGAL_NAME = "cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first."


class TestRefusedFunctions:
    """A function that a model could not call is refused when it is made a tool, in a sentence that names it."""

    @pytest.mark.parametrize(
        ("function", "about", "what"),
        [
            (untyped, "day of untyped", "has no type."),
            (by_position, "day of by_position", "can only be given by position, but a model gives arguments by name."),
            (any_number, "days of any_number", "takes any number of values, but a model needs to be told which."),
            (any_name, "days of any_name", "takes any name, but a model needs to be told which."),
            (calls_back, "then of calls_back", "has a type that cannot be described to a model as JSON."),
            (unfit, "thing of unfit", "has a type that cannot be described to a model as JSON."),
            (of_no_known_type, "amount of of_no_known_type", "has a type that is not known when the program runs."),
        ],
    )
    def test_a_parameter_that_a_model_could_not_fill_is_refused(self, function: Any, about: str, what: str) -> None:
        """The sentence names function and parameter."""
        with pytest.raises(ConfigurationError) as refused:
            tool(function)

        assert refused.value.sentence == f"The parameter {about} {what}"

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (Party, "Party is a class: give one of its methods, or an instance to call."),
            (find_table, "find_table is a tool already."),
            (42, "A tool must be made of a function, a method or an object that can be called."),
            (
                {"type": "function", "function": {"name": "find"}},
                "A tool cannot be made of a dict, which does no work: give its schema with a function, "
                "as in tool(function, name=…, parameters=schema).",
            ),
            (
                functools.partial(len),
                "The parameter obj of len can only be given by position, but a model gives arguments by name.",
            ),
            (
                str.upper,
                "The parameter self of upper can only be given by position, but a model gives arguments by name.",
            ),
            (max, "The parameters of max are not known to Python."),
        ],
    )
    def test_what_cannot_be_called_by_a_model_is_refused(self, given: Any, sentence: str) -> None:
        """Classes, tools that are made already, other values, and functions that take no names."""
        with pytest.raises(ConfigurationError) as refused:
            tool(given)

        assert refused.value.sentence == sentence

    def test_a_generator_is_refused(self) -> None:
        """It has no single result."""
        with pytest.raises(ConfigurationError) as refused:
            tool(generates)

        assert refused.value.sentence == "The function generates is a generator, but a tool returns one result."

    @holds_for(
        ("declared", "sentence"),
        [
            ({"name": "find table"}, f"find table {ILLEGAL_NAME}"),
            ({"name": "tïsch"}, f"tïsch {ILLEGAL_NAME}"),
            ({"name": "1st"}, f"1st {ILLEGAL_NAME}"),
            ({"crash": "no"}, "The crash of plain must be one of pure, idempotent, reconcile, at_most_once."),
            (
                {"acts": ["song"], "exclusive": True},
                "The acts of plain can only be a list of speech, work_complete, question, mail, children, transfer.",
            ),
            ({"acts": ["question"]}, "plain declares question, so it must be declared with exclusive=True."),
            ({"timeout": 0}, "The timeout of plain must be a number of seconds above 0."),
            ({"timeout": math.inf}, "The timeout of plain must be a number of seconds above 0."),
        ],
    )
    def test_an_impossible_declaration_is_refused(self, declared: dict[str, Any], sentence: str) -> None:
        """A name that providers refuse, an unknown contract or act, a tool that asks without being exclusive, a timeout
        that is no limit."""

        def plain() -> None: ...

        with pytest.raises(ConfigurationError) as refused:
            tool(**declared)(plain)

        assert refused.value.sentence == sentence
