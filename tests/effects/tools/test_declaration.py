"""Whatever an application hands over as a tool either works or is refused in one sentence that names the cause."""

# ruff: noqa: B006, B008, D102, D103, RUF013, UP007, UP037, UP045  (the functions are written as others write them)
from __future__ import annotations

import asyncio
import calendar
import collections
import contextlib
import dataclasses
import datetime
import decimal
import difflib
import enum
import functools
import ipaddress
import math
import pathlib
import re
import statistics
import sys
import textwrap
import threading
import typing
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, Protocol, TypeVar, Union, overload

import jsonschema
import pytest
import typing_extensions
from pydantic import AfterValidator, BaseModel, Field

from turnwise import ConfigurationError, Engine, ToolContext, tool
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult

from ...support.cases import holds_for
from ...support.tools import Party, Point, Size, find_table, outcome_of, resolve_call
from ...support.type_checking import BY_EACH_CHECKER, lines_with_errors, marked_lines

T = TypeVar("T")
Celsius = NewType("Celsius", float)


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """A level."""

    LOW = 1


class Position(NamedTuple):
    """Where."""

    x: int
    y: int = 0


class Address(typing_extensions.TypedDict):
    """Where somebody lives."""

    street: str
    number: typing_extensions.NotRequired[int]


class Node(BaseModel):
    """A node of a tree."""

    name: str
    children: list[Node] = []


class Order(BaseModel):
    """An order of several models."""

    party: Party
    at: Point | None = None
    colours: set[Colour] = set()


@dataclasses.dataclass
class Robot:
    """An object with methods, which can be called."""

    name: str

    def walk(self, steps: int, *, to: Position | None = None) -> str:
        """Walk."""
        return f"{self.name} {steps} {to}"

    async def talk(self, text: str) -> str:
        """Talk."""
        return f"{self.name}: {text}"

    def __call__(self, order: str = "nothing") -> str:
        """Obey."""
        return f"{self.name} does {order}"


class Greeter:
    """Greets."""

    async def __call__(self, name: str) -> str:
        return f"Hello {name}"


class Counted:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that keeps the signature."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


def nothing() -> None: ...
def text(it: str) -> Any:
    return it


def number(it: int = None) -> Any:
    return it  # type: ignore[assignment]


def floats(it: float = math.inf) -> Any:
    return it


def optional(it: Optional[str] = None) -> Any:
    return it


def union(it: Union[int, list[str], None] = 3) -> Any:
    return it


def literal(it: Literal["a", 1, None] = "a") -> Any:
    return it


def colour(it: Colour = Colour.RED) -> Any:
    return it


def level(it: Level = Level.LOW) -> Any:
    return it


def size(it: Size) -> Any:
    return it


def position(it: Position = Position(1)) -> Any:
    return it


def point(it: Point) -> Any:
    return it


def address(it: Address) -> Any:
    return it


def node(it: Node) -> Any:
    return it


def order(it: Order) -> Any:
    return it


def day(it: datetime.date) -> Any:
    return it


def moment(it: datetime.datetime = datetime.datetime(2030, 1, 1)) -> Any:
    return it


def duration(it: datetime.timedelta) -> Any:
    return it


def path(it: pathlib.Path = pathlib.Path("/tmp")) -> Any:
    return it


def raw(it: bytes = b"x") -> Any:
    return it


def exact(it: decimal.Decimal) -> Any:
    return it


def identity(it: uuid.UUID) -> Any:
    return it


def network(it: ipaddress.IPv4Address) -> Any:
    return it


def pattern(it: re.Pattern[str]) -> Any:
    return it


def anything(it: Any = ...) -> Any:
    return it


def bare(it: object) -> Any:
    return it


def listing(it: list) -> Any:
    return it  # type: ignore[type-arg]


def mapping(it: Mapping[str, int]) -> Any:
    return it


def sequence(it: Sequence[int] = ()) -> Any:
    return it


def pair(it: tuple[int, str]) -> Any:
    return it


def mutable(it: list[int] = []) -> Any:
    return it


def celsius(it: Celsius) -> Any:
    return it


def bounded(it: Annotated[int, Field(ge=1)] = None) -> Any:
    return it  # type: ignore[assignment]


def stripped(it: Annotated[str, AfterValidator(str.strip)] = None) -> Any:
    return it  # type: ignore[assignment]


def defaulted(it: int = Field(None, ge=1)) -> Any:
    return it


def aliased(it: Annotated[str, Field(alias="it")] = None) -> Any:
    return it  # type: ignore[assignment]


def quoted(it: "Node") -> Any:
    return it


def keyword(*, it: int) -> Any:
    return it


def context(it: int, where: ToolContext) -> Any:
    return it


async def slow(it: int) -> int:
    """A coroutine function."""
    await asyncio.sleep(0)
    return it


@functools.lru_cache(maxsize=2)
def cached(it: int) -> int:
    """Twice as much."""
    return 2 * it


@wrapped
def decorated(it: int) -> int:
    """Twice as much."""
    return 2 * it


@Counted
def counted(it: int) -> int:
    """Twice as much."""
    return 2 * it


@overload
def overloaded(it: int) -> int: ...
@overload
def overloaded(it: str) -> str: ...
def overloaded(it: int | str) -> int | str:
    """Of several types."""
    return it


@functools.singledispatch
def dispatched(it: int) -> int:
    """By type."""
    return it


ROBOT = Robot("R2")

ZOO: list[tuple[Any, str, str, str]] = [
    (nothing, "nothing", "{}", "Done."),
    (text, "text", '{"it": "x"}', "x"),
    (number, "number", '{"it": null}', "Done."),
    (number, "number", '{"it": 3}', "3"),
    (floats, "floats", "{}", '"Infinity"'),
    (optional, "optional", '{"it": null}', "Done."),
    (union, "union", '{"it": ["a"]}', '["a"]'),
    (union, "union", '{"it": null}', "Done."),
    (literal, "literal", '{"it": 1}', "1"),
    (colour, "colour", '{"it": "blue"}', '"blue"'),
    (colour, "colour", "{}", '"red"'),
    (level, "level", '{"it": 1}', "1"),
    (size, "size", '{"it": "big"}', "big"),
    (position, "position", '{"it": [1, 2]}', "[1,2]"),
    (point, "point", '{"it": {"x": 1, "y": 2}}', '{"x":1,"y":2.0}'),
    (address, "address", '{"it": {"street": "x"}}', '{"street":"x"}'),
    (
        node,
        "node",
        '{"it": {"name": "a", "children": [{"name": "b"}]}}',
        '{"name":"a","children":[{"name":"b","children":[]}]}',
    ),
    (order, "order", '{"it": {"party": {"adults": 1}}}', '{"party":{"adults":1,"children":0},"at":null,"colours":[]}'),
    (day, "day", '{"it": "2030-01-31"}', '"2030-01-31"'),
    (moment, "moment", "{}", '"2030-01-01T00:00:00"'),
    (duration, "duration", '{"it": "PT1H"}', '"PT1H"'),
    (path, "path", '{"it": "/x"}', '"/x"'),
    (raw, "raw", '{"it": "abc"}', '"abc"'),
    (exact, "exact", '{"it": "1.50"}', '"1.50"'),
    (identity, "identity", '{"it": "12345678-1234-5678-1234-567812345678"}', '"12345678-1234-5678-1234-567812345678"'),
    (network, "network", '{"it": "127.0.0.1"}', '"127.0.0.1"'),
    (pattern, "pattern", '{"it": "a+"}', '"a+"'),
    (anything, "anything", '{"it": [null]}', "[null]"),
    (bare, "bare", '{"it": {"a": 1}}', '{"a":1}'),
    (listing, "listing", '{"it": [1, "a"]}', '[1,"a"]'),
    (mapping, "mapping", '{"it": {"a": 1}}', '{"a":1}'),
    (sequence, "sequence", '{"it": [1]}', "[1]"),
    (pair, "pair", '{"it": [1, "a"]}', '[1,"a"]'),
    (mutable, "mutable", "{}", "[]"),
    (celsius, "celsius", '{"it": 1.5}', "1.5"),
    (bounded, "bounded", '{"it": null}', "Done."),
    (bounded, "bounded", '{"it": 1}', "1"),
    (stripped, "stripped", '{"it": null}', "Done."),
    (stripped, "stripped", '{"it": " a "}', "a"),
    (defaulted, "defaulted", '{"it": null}', "Done."),
    (aliased, "aliased", '{"it": null}', "Done."),
    (quoted, "quoted", '{"it": {"name": "a"}}', '{"name":"a","children":[]}'),
    (keyword, "keyword", '{"it": 1}', "1"),
    (context, "context", '{"it": 1}', "1"),
    (slow, "slow", '{"it": 1}', "1"),
    (cached, "cached", '{"it": 2}', "4"),
    (decorated, "decorated", '{"it": 2}', "4"),
    (counted, "counted", '{"it": 2}', "4"),
    (overloaded, "overloaded", '{"it": "a"}', "a"),
    (ROBOT, "Robot", '{"order": "tea"}', "R2 does tea"),
    (ROBOT.walk, "walk", '{"steps": 2, "to": [1, 2]}', "R2 2 Position(x=1, y=2)"),
    (ROBOT.talk, "talk", '{"text": "hi"}', "R2: hi"),
    (Greeter(), "Greeter", '{"name": "Ann"}', "Hello Ann"),
    (functools.partial(ROBOT, "tea"), "Robot", "{}", "R2 does tea"),
    (functools.partial(ROBOT.walk, 3), "walk", "{}", "R2 3 None"),
    (functools.partial(functools.partial(Robot.walk, ROBOT), steps=3), "walk", "{}", "R2 3 None"),
    (functools.partial(Greeter(), name="Ann"), "Greeter", "{}", "Hello Ann"),
    (functools.partial(slow, 1), "slow", "{}", "1"),
    (functools.partial(cached, it=2), "cached", "{}", "4"),
]
"""Functions of every kind: the tool's name, arguments of a call, and what the model reads."""


class TestForeignFunctions:
    """Functions that were written without a thought of tools."""

    @pytest.mark.slow
    @holds_for(("function", "name", "arguments", "result"), ZOO)
    async def test_it_works(self, function: Any, name: str, arguments: str, result: str) -> None:
        """Its schema is valid and holds its arguments, and its result is what it returns."""
        made = tool(function)

        assert made.name == name
        jsonschema.Draft202012Validator.check_schema(made.parameters)
        assert set(made.parameters["properties"]) <= {"it", "order", "steps", "to", "text", "name"}
        assert resolve_call(arguments, made, name=name).fault is None
        assert await outcome_of(made, arguments) == ToolResult(text=result)

    def test_functions_of_the_standard_library_work_or_are_refused(self) -> None:
        """None of them fails in another way, and those without types say so."""
        modules = (calendar, contextlib, difflib, math, re, statistics, textwrap, uuid, asyncio, collections, typing)
        functions = [one for module in modules for one in vars(module).values() if callable(one)]

        sentences = []
        for function in functions:
            try:
                tool(function)
            except ConfigurationError as error:
                sentences.append(error.sentence)

        assert len(sentences) > 200
        assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)

    def test_a_cached_function_keeps_its_cache(self) -> None:
        """It is called itself, not the function that it caches."""
        made: Any = tool(cached)

        before = cached.cache_info().hits
        assert (made(7), made(7)) == (14, 14)
        assert cached.cache_info().hits == before + 1

    def test_null_is_the_default_that_it_is(self) -> None:
        """In the schema such a parameter is optional, like one whose type allows null."""
        schemas = [tool(function).parameters for function in (number, optional, bounded)]

        assert [schema["properties"]["it"] for schema in schemas] == [
            {"type": "integer"},
            {"type": "string"},
            {"type": "integer", "minimum": 1},
        ]
        assert all("required" not in schema for schema in schemas)

    def test_null_is_a_fault_of_what_must_be_given(self) -> None:
        """For a parameter that has a default it says that it is not given."""

        def count(n: int, m: int = 3) -> None: ...

        call = resolve_call({"n": None, "m": None}, tool(count), name="count")

        assert call.fault == "Invalid input: n: Input should be a valid integer"
        assert resolve_call({"n": 1, "m": None}, tool(count), name="count").raw_arguments == '{"n": 1}'


def position_only(it: int, /) -> None: ...
def generator(it: int) -> Iterator[int]:
    yield it


async def async_generator(it: int) -> AsyncIterator[int]:
    yield it


@functools.cache
async def cached_coroutine(it: int) -> int:
    """A coroutine can be awaited once."""
    return it


@functools.cache
def cached_generator(it: int) -> Iterator[int]:
    """A generator is used up once."""
    yield it


class Old(typing.TypedDict):
    """A typed dict that pydantic cannot read before Python 3.12."""

    name: str


def old(it: Old) -> None: ...
def old_inside(it: list[Old] | None = None) -> None: ...


class Iterating:
    """It is called like a generator."""

    def __call__(self, it: int) -> Iterator[int]:
        yield it


class Shown(Protocol):
    """A protocol says nothing that a model could give."""

    def show(self) -> str:
        """Show."""
        ...


def protocol(it: Shown) -> None: ...


ILLEGAL_NAME = "cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first."
NOT_CALLABLE = "A tool must be made of a function, a method or an object that can be called."
OLD = "uses typing.TypedDict, which can be read from Python 3.12 on: use typing_extensions.TypedDict."


class TestRefusals:
    """What cannot be a tool is refused with its cause."""

    @holds_for(
        ("given", "sentence"),
        [
            (
                position_only,
                "The parameter it of position_only can only be given by position, but a model gives arguments by name.",
            ),
            (generator, "The function generator is a generator, but a tool returns one result."),
            (async_generator, "The function async_generator is a generator, but a tool returns one result."),
            (cached_generator, "The function cached_generator is a generator, but a tool returns one result."),
            (functools.partial(generator, 1), "The function generator is a generator, but a tool returns one result."),
            (Iterating(), "The function Iterating is a generator, but a tool returns one result."),
            (
                cached_coroutine,
                "The function cached_coroutine caches coroutines, each of which can be awaited only once: "
                "cache what it awaits.",
            ),
            (
                dispatched,
                "The function dispatched is chosen by the type of an argument that is given by position, "
                "but a model gives arguments by name.",
            ),
            (max, "The parameters of max are not known to Python."),
            (protocol, "The parameter it of protocol has a type that cannot be described to a model as JSON."),
            (
                lambda: 3,
                "<lambda> cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first.",
            ),
            (calendar.isleap, "The parameter year of isleap has no type."),
            (threading, NOT_CALLABLE),
            ("ask_user_question", NOT_CALLABLE),
            (None.__class__, "NoneType is a class: give one of its methods, or an instance to call."),
            (find_table, "find_table is a tool already."),
            *(
                [(old, f"The parameter it of old {OLD}"), (old_inside, f"The parameter it of old_inside {OLD}")]
                if sys.version_info < (3, 12)
                else []
            ),
        ],
    )
    def test_it_is_refused(self, given: Any, sentence: str) -> None:
        """In one sentence."""
        with pytest.raises(ConfigurationError) as refused:
            tool(given)

        assert refused.value.sentence == sentence

    @holds_for(
        ("options", "sentence"),
        [
            ({"errors": "all"}, "The errors of text must be one of type, message."),
            ({"max_result": 199}, "The max_result of text must be a number of characters, at least 200."),
            (
                {"crash": "reconcile", "reconcile": 3},
                NOT_CALLABLE,
            ),
        ],
    )
    def test_an_unfit_option_is_refused(self, options: Any, sentence: str) -> None:
        """With the function, and as a decorator."""
        for make in (lambda: tool(text, **options), lambda: tool(**options)(text)):
            with pytest.raises(ConfigurationError) as refused:
                make()

            assert refused.value.sentence == sentence

    def test_an_unknown_option_is_an_error_of_python(self) -> None:
        """As for every function."""
        with pytest.raises(TypeError, match="aproval"):
            tool(text, aproval=True)  # type: ignore[call-overload]

    @pytest.mark.parametrize(
        ("tools", "sentence"),
        [
            ({"text": text}, "Tools must be given as a list, not as a dict."),
            (text, "Tools must be given as a list."),
            (find_table, "Tools must be given as a list."),
            (
                [{"type": "function", "function": {"name": "find"}}],
                "A tool cannot be made of a dict, which does no work: give its schema with a function, "
                "as in tool(function, name=…, parameters=schema).",
            ),
        ],
    )
    def test_tools_that_are_no_list_of_tools_are_refused(self, tools: Any, sentence: str) -> None:
        """By a registry, and by an engine."""
        for give in (ToolRegistry, lambda tools: Engine.open("sqlite://", tools=tools)):
            with pytest.raises(ConfigurationError) as refused:
                give(tools)

            assert refused.value.sentence == sentence


class TestOptions:
    """Function and options together."""

    async def test_a_function_is_given_with_its_options(self) -> None:
        """As by the decorator."""
        made = tool(text, name="echo", description="Say it again.", crash="pure", approval=True, max_result=200)

        assert (made.name, made.description, made.crash) == ("echo", "Say it again.", "pure")
        assert (made.approval, made.max_result, made.errors) == (True, 200, "type")
        assert await outcome_of(made, '{"it": "x"}') == ToolResult(text="x")
        assert made("x") == "x"

    def test_the_docstring_of_an_object_is_that_of_what_is_called(self) -> None:
        """Or else that of its class."""
        assert [tool(given).description for given in (ROBOT, Greeter(), counted, cached)] == [
            "Obey.",
            "Greets.",
            "Twice as much.",
            "Twice as much.",
        ]


PROGRAM = """
from collections.abc import Callable
from typing import assert_type
from turnwise import Tool, tool, tools_of

@tool
def one(a: int) -> str:
    return str(a)

@tool(crash="pure", approval=lambda a: a > 3)
async def two(a: int) -> str:
    return str(a)

def three(a: int, b: str = "") -> float:
    return 1.0

class Desk:
    @tool
    def ring(self, times: int) -> bytes:
        return b"ding" * times

    @tool(timeout=3)
    async def wait(self, seconds: int) -> None: ...

assert_type(one(1), str)
assert_type(tool(three, name="x", description="y", parameters={})(1, b=""), float)
assert_type(Desk().ring(times=2), bytes)
assert_type(Desk.ring(Desk(), 2), bytes)

async def main() -> None:
    assert_type(await two(a=1), str)
    await Desk().wait(3)

one("x")  # error
Desk().ring("x")  # error
Desk().ring()  # error
tool(three, aproval=True)  # error
tool(crash="never")  # error
"""
"""A program with tools; the lines that end in "# error" are wrong."""


@pytest.mark.slow
@BY_EACH_CHECKER
def test_type_checkers_know_what_a_tool_takes(checker: str, tmp_path: pathlib.Path) -> None:
    """A decorated function keeps its signature, with and without options, and a method is bound."""
    assert lines_with_errors(checker, PROGRAM, tmp_path) == marked_lines(PROGRAM)
