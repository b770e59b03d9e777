"""Functions become tools, calls are checked when they enter, and whatever a tool does, one outcome comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import enum
import functools
import inspect
import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools import calling as running
from turnwise.effects.tools.acts import Question
from turnwise.effects.tools.arguments import MAX_ARGUMENTS
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.run import ToolOutcome, run
from turnwise.effects.tools.tool import Tool, make_tool, tool
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.messages import ToolCall, ToolResult
from turnwise.states.values.questions import QuestionOption, UserQuestion

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Party(BaseModel):
    """Who comes."""

    adults: int
    children: int = 0

    @field_validator("adults")
    @classmethod
    def _someone_comes(cls, adults: int) -> int:
        if adults < 1:
            raise ValueError("at least one adult must come")
        return adults


class Tree(BaseModel):
    """A type that holds itself."""

    label: str
    branches: list[Tree] = []


@tool(crash="pure", timeout=5)
async def find_table(
    cuisine: Annotated[str, Field(description="What to eat")], party: Party, day: date | None = None, round: int = 1
) -> str:
    """Look for a free table.

    Ask for one day at a time.
    """
    return f"{cuisine} for {party.adults + party.children} on {day}, round {round}"


def context(progress: Callable[[str], None] = lambda line: None) -> ToolContext:
    """What a tool is told about its call."""
    return ToolContext(conversation_id="c", key="c/3", call_id="call_2_0", progress=progress)


async def outcome_of(function: Callable[..., Any], arguments: str = "{}") -> ToolOutcome:
    """What comes of one call of this function, or tool."""
    called = function if isinstance(function, Tool) else tool(function)
    return await run(called, arguments, context())


def entered(arguments: object, *tools: Any, name: str = "find_table") -> ToolCall:
    """A call as it enters, with its arguments as text or as what the text is made from."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    (call,) = ToolRegistry(tools or [find_table]).enter(2, [ModelCall("p", name, written)])
    return call


def error(sentence: str) -> ToolResult:
    """An error result."""
    return ToolResult(text=sentence, error=True)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Something that a thread may wait for in vain; set when the test is over, so that the thread ends."""
    event = threading.Event()
    yield event
    event.set()


class TestMakingATool:
    """Name, description and arguments come from the function."""

    def test_a_tool_is_offered_as_openai_function_tools_are(self) -> None:
        """The definition, whole: types in place, no titles, a null default not shown, nothing extra allowed."""
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
        """A host's own code and tests need no engine to call it."""
        assert await find_table("sushi", Party(adults=2)) == "sushi for 2 on None, round 1"

    def test_a_tool_looks_like_the_function(self) -> None:
        """What functools.wraps keeps is kept."""

        def double(n: int) -> int:
            """Twice as much."""
            return 2 * n

        double.colour = "red"  # type: ignore[attr-defined]

        made: Any = tool(double)

        assert (made.__name__, made.__doc__, made.__module__) == ("double", "Twice as much.", __name__)
        assert made.__wrapped__ is double
        assert made.colour == "red"
        assert inspect.signature(made) == inspect.signature(double)

    def test_what_is_declared_stands_on_the_tool(self) -> None:
        """Without declarations a tool is never run twice, may run beside others, asks nothing, and has a minute."""

        def plain() -> None: ...

        made = tool(plain)
        declared = tool(name="ask", crash="idempotent", exclusive=True, acts=["question"], timeout=3)(plain)

        assert (made.crash, made.exclusive, made.acts, made.timeout) == ("at_most_once", False, (), 60.0)
        assert (declared.name, declared.crash, declared.exclusive) == ("ask", "idempotent", True)
        assert (declared.acts, declared.timeout) == (("question",), 3)

    def test_a_tool_without_parameters_takes_an_empty_object(self) -> None:
        """The schema is that of an object all the same: providers refuse others."""

        def now() -> None: ...

        assert tool(now).parameters == {"type": "object", "properties": {}, "additionalProperties": False}

    def test_the_context_is_not_offered_to_the_model(self) -> None:
        """A parameter of type ToolContext is left out of the schema, also one that may be None."""

        def note(text: str, where: ToolContext, also: ToolContext | None = None) -> None: ...

        assert list(tool(note).parameters["properties"]) == ["text"]

    def test_types_of_the_defining_function_are_found(self) -> None:
        """Types written as text may name what is visible where the tool is defined."""

        class Wine(BaseModel):
            grape: Literal["red", "white"]

        @tool
        def pour(wine: Wine) -> None: ...

        (wine,) = pour.parameters["properties"].values()
        assert wine["properties"] == {"grape": {"type": "string", "enum": ["red", "white"]}}

    def test_a_return_type_need_not_exist_when_the_program_runs(self) -> None:
        """Only what a model fills must be known."""

        @tool
        def price() -> OnlyForTypeCheckers:
            raise NotImplementedError

        assert price.name == "price"

    def test_a_type_that_holds_itself_is_told_by_reference(self) -> None:
        """Everything else stands where it is used."""

        def plant(tree: Tree) -> None: ...

        schema = tool(plant).parameters

        assert schema["properties"] == {"tree": {"$ref": "#/$defs/Tree"}}
        assert list(schema["$defs"]) == ["Tree"]

    def test_names_that_pydantic_models_use_are_free(self) -> None:
        """A parameter may be called `json`, `schema` or `_private`."""

        def keep(json: str, schema: int, model_config: str, _private: bool, self_: str = "") -> None: ...

        names = list(tool(keep).parameters["properties"])

        assert names == ["json", "schema", "model_config", "_private", "self_"]

    async def test_a_default_that_json_cannot_show_is_still_the_default(self) -> None:
        """It is left out of the schema."""
        secret = object()

        def keep(it: Annotated[Any, Field(description="anything")] = secret) -> bool:
            return it is secret

        assert tool(keep).parameters["properties"] == {"it": {"description": "anything"}}
        assert await outcome_of(keep) == ToolResult(text="true")

    async def test_a_field_as_default_is_read_as_pydantic_reads_it(self) -> None:
        """`n: int = Field(3, description=…)`."""

        def count(n: int = Field(3, description="how many")) -> int:
            return n

        (n,) = tool(count).parameters["properties"].values()
        assert n == {"type": "integer", "default": 3, "description": "how many"}
        assert await outcome_of(count) == ToolResult(text="3")

    def test_what_pydantic_knows_of_types_is_kept(self) -> None:
        """Enums, dataclasses (closed, as the arguments are), sets and unions; infinite defaults are not shown."""

        def draw(size: Size, at: Point | None = None, n: int | str | None = None, most: float = math.inf) -> None: ...

        assert tool(draw).parameters["properties"] == {
            "size": {"type": "string", "enum": ["big"], "description": "A text that is also a member of something."},
            "at": {
                "type": "object",
                "description": "Something that JSON knows only by its fields.",
                "additionalProperties": False,
                "required": ["x", "y"],
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
            },
            "n": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "most": {"type": "number"},
        }

    async def test_a_parameter_may_have_another_name_for_the_model(self) -> None:
        """`from` is no name in Python."""

        def since(from_: Annotated[str, Field(alias="from")]) -> str:
            return from_

        assert list(tool(since).parameters["properties"]) == ["from"]
        assert await outcome_of(since, '{"from": "May"}') == ToolResult(text="May")

    async def test_a_bound_method_is_a_tool(self) -> None:
        """The object that it is bound to is no parameter."""

        class Desk:
            async def ring(self, times: int) -> str:
                """Ring the bell."""
                return "ding" * times

        made = tool(Desk().ring)

        assert (made.name, made.description) == ("ring", "Ring the bell.")
        assert await outcome_of(made, '{"times": 2}') == ToolResult(text="dingding")

    async def test_a_partial_is_a_tool_without_what_it_has_filled(self) -> None:
        """The model can neither see nor change what the host has filled in."""

        def book(place: str, time: str) -> str:
            """Book it."""
            return f"{place} at {time}"

        made = tool(functools.partial(book, place="Sakura"))

        assert (made.name, made.description, list(made.parameters["properties"])) == ("book", "Book it.", ["time"])
        assert await outcome_of(made, '{"time": "7"}') == ToolResult(text="Sakura at 7")
        assert await outcome_of(made, '{"time": "7", "place": "x"}') == error(
            "Invalid input: place: Extra inputs are not permitted"
        )


def untyped(cuisine: str, day) -> None: ...  # type: ignore[no-untyped-def]  # noqa: D103
def by_position(day: str, /) -> None: ...  # noqa: D103
def any_number(*days: str) -> None: ...  # noqa: D103
def any_name(**days: str) -> None: ...  # noqa: D103
def calls_back(then: Callable[[], None]) -> None: ...  # noqa: D103
def of_no_known_type(amount: OnlyForTypeCheckers) -> None: ...  # noqa: D103
def unfit(n: int, thing: threading.Event) -> None: ...  # noqa: D103
def generates(n: int) -> Iterator[int]:  # noqa: D103
    yield n


ILLEGAL_NAME = "cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first."


class TestWhatCannotBeATool:
    """A function that a model could not call is refused at once, in a sentence that says which and why."""

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

    @pytest.mark.parametrize("function", [len, Party, find_table, functools.partial(len), 42])
    def test_what_is_no_function_is_refused(self, function: Any) -> None:
        """Also a tool that is one already."""
        with pytest.raises(ConfigurationError) as refused:
            tool(function)

        assert refused.value.sentence == (
            "A tool must be made of a function, a bound method or a functools.partial of these."
        )

    def test_a_generator_is_refused(self) -> None:
        """There would be no one result."""
        with pytest.raises(ConfigurationError) as refused:
            tool(generates)

        assert refused.value.sentence == "The function generates is a generator, but a tool returns one result."

    @pytest.mark.parametrize(
        ("declared", "sentence"),
        [
            ({"name": "find table"}, f"find table {ILLEGAL_NAME}"),
            ({"name": "tïsch"}, f"tïsch {ILLEGAL_NAME}"),
            ({"name": "1st"}, f"1st {ILLEGAL_NAME}"),
            ({"crash": "no"}, "The crash contract of plain must be one of pure, idempotent, reconcile, at_most_once."),
            (
                {"acts": ["song"], "exclusive": True},
                "The acts of plain can only be a list of speech, work_complete, question, mail, children.",
            ),
            ({"acts": ["question"]}, "plain declares question, so it must be exclusive."),
            ({"timeout": 0}, "The timeout of plain must be a number of seconds above 0."),
            ({"timeout": math.inf}, "The timeout of plain must be a number of seconds above 0."),
            ({"timeout": None}, "The timeout of plain must be a number of seconds above 0."),
        ],
    )
    def test_a_declaration_that_cannot_hold_is_refused(self, declared: dict[str, Any], sentence: str) -> None:
        """Names that a provider would refuse, unknown contracts and acts, a tool that asks beside others, no limit."""

        def plain() -> None: ...

        with pytest.raises(ConfigurationError) as refused:
            tool(**declared)(plain)

        assert refused.value.sentence == sentence


class TestTheRegistry:
    """The tools of an engine, by name."""

    def test_tools_are_offered_in_the_order_given(self) -> None:
        """Plain functions are made tools; built-in tools are named; the definitions are made once."""

        def plain(n: int) -> None: ...

        registry = ToolRegistry([plain, "ask_user_question", find_table])

        definitions = registry.definitions()
        assert [each["function"]["name"] for each in definitions] == ["plain", "ask_user_question", "find_table"]
        assert registry.definitions() is definitions
        assert registry.find("find_table") is find_table
        assert registry.find("gone") is None

    @pytest.mark.parametrize(
        ("tools", "sentence"),
        [
            (
                ["ask_users"],
                "There is no built-in tool called ask_users. Known: ask_user_question, respond_to_user, "
                "speak_to_user, mark_work_complete, talk.",
            ),
            ([find_table, find_table], "There are two tools called find_table."),
            (["ask_user_question"] * 2, "There are two tools called ask_user_question."),
            ([untyped], "The parameter day of untyped has no type."),
            ("ask_user_question", "Tools must be given as a list."),
        ],
    )
    def test_what_cannot_be_offered_is_refused(self, tools: Any, sentence: str) -> None:
        """Unknown names, names that stand twice, and functions that cannot be tools."""
        with pytest.raises(ConfigurationError) as refused:
            ToolRegistry(tools)

        assert refused.value.sentence == sentence


NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"

VALID = {"cuisine": "sushi", "party": {"adults": 2}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class TestACallThatEnters:
    """A provider's call becomes one of ours, with what the registry knows of it now."""

    def test_a_good_call_carries_what_the_tool_declares(self) -> None:
        """The machine decides by these facts, and a replay needs no registry."""

        @tool(exclusive=True, acts=["question"], crash="idempotent")
        def ask() -> None: ...

        assert entered({}, ask, name="ask") == ToolCall(
            call_id="call_2_0", name="ask", provider_id="p", exclusive=True, crash="idempotent", acts=("question",)
        )

    def test_ids_are_unique_whatever_the_provider_sent(self) -> None:
        """P29: twice in one response, empty, the same again in the next."""
        calls = [ModelCall("call_0", "find_table"), ModelCall("call_0", "find_table"), ModelCall("", "find_table")]
        registry = ToolRegistry([find_table])

        ours = [*registry.enter(2, calls), *registry.enter(5, calls)]

        assert len({call.call_id for call in ours}) == 6
        assert [call.provider_id for call in ours] == ["call_0", "call_0", ""] * 2

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("find_tables", "There is no tool called find_tables. Known: find_table."),
            ("", "There is no tool called (no name). Known: find_table."),
            ("x" * 10_000, f"There is no tool called {'x' * 99}…. Known: find_table."),
        ],
    )
    def test_a_tool_that_does_not_exist_is_a_fault(self, name: str, sentence: str) -> None:
        """P5: the fault names the tool, and those there are."""
        assert entered(VALID, name=name).fault == sentence

    def test_a_call_where_there_are_no_tools_is_a_fault(self) -> None:
        """Models make up tools."""
        (call,) = ToolRegistry().enter(1, [ModelCall("p", "find_table")])

        assert call.fault == "There is no tool called find_table. There are no tools."

    @pytest.mark.parametrize(
        "arguments",
        ["{", "null", "[]", '"{}"', "3", '{"cuisine": NaN}', "[" * 5_000, '{"cuisine": "a"} {}', "\ufeff{}", "None"],
    )
    def test_arguments_that_are_no_json_object_are_a_fault(self, arguments: str) -> None:
        """P5: malformed arguments, whatever the way."""
        call = entered(arguments)

        assert call.fault == "Invalid input: the arguments are not a JSON object"
        assert call.arguments == arguments

    @pytest.mark.parametrize(
        ("arguments", "fault"),
        [
            ({}, "cuisine: Field required; party: Field required"),
            ({**VALID, "party": {}}, "party.adults: Field required"),
            ({**VALID, "party": {"adults": None}}, "party.adults: Input should be a valid integer"),
            ({**VALID, "party": {"adults": "two"}}, f"party.adults: {NO_INTEGER}"),
            ({**VALID, "party": {"adults": 0}}, "party.adults: at least one adult must come"),
            ({**VALID, "party": "two"}, "party: Input should be an object"),
            ({**VALID, "cuisine": None}, "cuisine: Input should be a valid string"),
            ({**VALID, "wine": "red"}, "wine: Extra inputs are not permitted"),
            ({**VALID, "parameter_0": "x"}, "parameter_0: Extra inputs are not permitted"),
            ({**VALID, "w" * 100: 1}, f"{'w' * 59}…: Extra inputs are not permitted"),
        ],
    )
    def test_arguments_that_do_not_fit_are_a_fault(self, arguments: object, fault: str) -> None:
        """P5: each field at fault is named; its value is not repeated."""
        assert entered(arguments).fault == f"Invalid input: {fault}"

    def test_a_fault_names_no_type_of_ours(self) -> None:
        """P33: where a value may be of several types, pydantic's names for them are left out, and values too."""

        class Cat(BaseModel):
            kind: Literal["cat"]

        class Dog(BaseModel):
            kind: Literal["dog"]

        Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
        Amount = int | Annotated[str, Field(max_length=1)]

        def feed(pet: Pet, amounts: list[Amount], range: tuple[int, int]) -> None: ...

        fed = {"pet": {"kind": "secret"}, "amounts": [1, "secret"], "range": [1]}
        call = entered(fed, make_tool(feed, names=locals()), name="feed")

        assert call.fault == (
            "Invalid input: pet: Input should be tagged as one of 'cat', 'dog'; "
            f"amounts.1: {NO_INTEGER}; "
            "amounts.1: String should have at most 1 character; "
            "range.1: Field required"
        )

    def test_a_fault_is_of_bounded_length(self) -> None:
        """P33: however much is wrong."""
        fault = entered({f"field {n}": n for n in range(1_000)}).fault

        assert fault is not None
        assert len(fault) == 500

    def test_a_validator_that_fails_in_its_own_way_is_a_fault(self) -> None:
        """A host's validator is foreign code; nothing that it raises may stop a response from entering."""

        class Broken(BaseModel):
            n: int

            @field_validator("n")
            @classmethod
            def _breaks(cls, n: int) -> int:
                raise KeyError(n)

        def count(it: Broken) -> None: ...

        call = entered({"it": {"n": 1}}, tool(count), name="count")

        assert call.fault == "Invalid input: the arguments could not be checked"

    def test_too_many_arguments_are_refused_and_not_kept(self) -> None:
        """Arguments are stored and sent back to the model: there is a bound."""
        call = entered({**VALID, "cuisine": "x" * MAX_ARGUMENTS})

        assert call.fault == "Invalid input: the arguments are longer than 1,000,000 characters"
        assert call.arguments == "{}"

    @pytest.mark.parametrize("arguments", ["", " \n"])
    def test_no_arguments_at_all_are_an_empty_object(self, arguments: str) -> None:
        """Some models write nothing where a tool takes nothing."""

        def now() -> None: ...

        call = entered(arguments, now, name="now")

        assert (call.arguments, call.fault) == ("{}", None)

    @pytest.mark.parametrize(
        ("written", "kept"),
        [
            ("\ud83c", REPLACEMENT),
            ("\\ud83c", "\\ufffd"),
            ("\\uD83C\\ud83c\\udf63", "\\ufffd\\ud83c\\udf63"),
            ("\\\\ud83c", "\\\\ud83c"),
            ("\\udf63", "\\ufffd"),
            ("\ud83c\udf63", "🍣"),
        ],
    )
    def test_half_characters_are_replaced(self, written: str, kept: str) -> None:
        """A model that breaks off within an emoji leaves half of it, as it is or as an escape."""
        call = entered(f'{{"cuisine": "{written}", "party": {{"adults": 1}}}}')

        assert call.fault is None
        assert call.arguments == f'{{"cuisine": "{kept}", "party": {{"adults": 1}}}}'

    def test_half_characters_in_names_are_replaced(self) -> None:
        """Everything of a call is stored."""
        (call,) = ToolRegistry([find_table]).enter(1, [ModelCall("\ud83c", "x\ud83c")])

        assert (call.provider_id, call.name) == (REPLACEMENT, f"x{REPLACEMENT}")
        assert call.fault == f"There is no tool called x{REPLACEMENT}. Known: find_table."

    @given(JSON.map(json.dumps) | st.text(st.characters()), st.text(st.characters()) | st.just("ask_user_question"))
    def test_anything_may_enter(self, arguments: str, name: str) -> None:
        """No arguments and no name stop a response; the call can be stored, and its fault is bounded."""
        (call,) = ToolRegistry([find_table, "ask_user_question"]).enter(1, [ModelCall("p", name, arguments)])

        assert ToolCall.model_validate_json(call.to_json()) == call
        assert call.fault is not None
        assert len(call.fault) <= 500

    @given(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers(min_value=1),
        st.dates() | st.none(),
        st.integers(),
    )
    def test_good_arguments_arrive_unchanged(self, cuisine: str, adults: int, day: date | None, round: int) -> None:
        """What a model writes is what the function gets, in its types."""
        arguments = {"cuisine": cuisine, "party": {"adults": adults}, "day": day, "round": round}
        written = json.dumps(arguments, default=str)

        call = entered(written)

        assert (call.fault, call.arguments) == (None, written)
        given_to_it = find_table.arguments.read(call.arguments, context())
        assert given_to_it == {**arguments, "party": Party(adults=adults)}


class TestRunning:
    """A tool runs, and its text comes back."""

    async def test_a_coroutine_gets_its_arguments_in_its_types(self) -> None:
        """JSON becomes dates and models."""
        result = await outcome_of(find_table, '{"cuisine": "sushi", "party": {"adults": 2}, "day": "2030-01-31"}')

        assert result == ToolResult(text="sushi for 2 on 2030-01-31, round 1")

    async def test_arguments_that_do_not_fit_are_an_error_result(self) -> None:
        """A call may also be run from an older log, by a tool that has changed since."""
        assert await outcome_of(find_table) == error("Invalid input: cuisine: Field required; party: Field required")

    async def test_a_tool_may_know_its_call(self) -> None:
        """A parameter of type ToolContext is filled by the runner."""

        async def where(it: ToolContext) -> str:
            return f"{it.conversation_id} {it.key} {it.call_id}"

        assert await outcome_of(where) == ToolResult(text="c c/3 call_2_0")

    async def test_a_plain_function_does_not_hold_the_others_up(self, never: threading.Event) -> None:
        """It runs in a thread: the loop goes on while it waits. Its progress is shown from the loop."""
        begun = asyncio.Event()
        shown: list[tuple[str, threading.Thread]] = []

        def wait(it: ToolContext) -> str:
            it.progress("waiting")
            return "released" if never.wait(10) else "held up"

        def progress(line: str) -> None:
            shown.append((line, threading.current_thread()))
            begun.set()

        task = asyncio.create_task(run(tool(wait), "{}", context(progress)))
        await begun.wait()
        never.set()

        assert await task == ToolResult(text="released")
        assert shown == [("waiting", threading.current_thread())]

    async def test_a_plain_function_sees_the_context_variables_of_its_caller(self) -> None:
        """A host's tracing goes on inside tools."""
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
        variable.set("set")

        def read() -> str:
            return variable.get()

        assert await outcome_of(read) == ToolResult(text="set")

    async def test_a_plain_function_that_returns_something_to_await_is_awaited(self) -> None:
        """A coroutine function behind a plain decorator is one still."""

        async def inner() -> str:
            return "awaited"

        def outer() -> Any:
            return inner()

        assert await outcome_of(outer) == ToolResult(text="awaited")


class Size(str, enum.Enum):  # noqa: UP042  (a StrEnum would write itself like a text)
    """A text that is also a member of something."""

    BIG = "big"


@dataclasses.dataclass
class Point:
    """Something that JSON knows only by its fields."""

    x: int
    y: float


class TestWhatAToolReturns:
    """Whatever it is, the model reads text."""

    @pytest.mark.parametrize(
        ("returned", "text"),
        [
            ("as it is\n", "as it is\n"),
            ("", ""),
            (None, "Done."),
            (Party(adults=2), '{"adults":2,"children":0}'),
            (Point(1, 0.5), '{"x":1,"y":0.5}'),
            ({"a": [1, None, True, "é"], 2: date(2030, 1, 31)}, '{"a":[1,null,true,"é"],"2":"2030-01-31"}'),
            ((), "[]"),
            (0, "0"),
            (False, "false"),
            (Size.BIG, "big"),
            ({"x": math.nan}, '{"x":"NaN"}'),
            ({"x": logging.NullHandler}, '{"x":"<class \'logging.NullHandler\'>"}'),
            ("half \ud83c", f"half {REPLACEMENT}"),
            ({"\ud83c": ["🍣", "\ud83c"]}, '{"\\ufffd": ["\\ud83c\\udf63", "\\ufffd"]}'),
            (ToolResult(text="no", error=True), None),
        ],
    )
    async def test_a_value_becomes_text(self, returned: Any, text: str | None) -> None:
        """Text as it is, nothing as "Done.", the rest as JSON, and a ready result as it is."""

        async def give() -> Any:
            return returned

        expected = returned if text is None else ToolResult(text=text)
        assert await outcome_of(give) == expected

    async def test_a_value_that_cannot_be_written_is_an_error_result(self) -> None:
        """Here a list that holds itself."""

        def give() -> Any:
            endless: list[Any] = []
            endless.append(endless)
            return endless

        assert await outcome_of(give) == error("give returned something that cannot be written as JSON.")

    async def test_a_declared_question_is_an_act(self) -> None:
        """A host's own tool asks in the same way as the built-in one."""
        asked = UserQuestion(question="Which?", options=(QuestionOption(label="a"), QuestionOption(label="b")))

        @tool(exclusive=True, acts=["question"])
        async def ask() -> Question:
            return Question((asked,))

        assert await outcome_of(ask) == Question((asked,))

    async def test_an_undeclared_question_is_an_error_result(self) -> None:
        """A tool returns only acts of the kinds that it declares."""
        asked = UserQuestion(question="Which?", options=(QuestionOption(label="a"), QuestionOption(label="b")))

        async def sneak() -> Question:
            return Question((asked,))

        assert await outcome_of(sneak) == error("sneak may not ask the user: it does not declare that it asks.")

    async def test_the_built_in_tool_asks_what_the_model_wrote(self) -> None:
        """P12: the questions of the call are the questions of the act."""
        ask = ToolRegistry(["ask_user_question"]).find("ask_user_question")
        assert ask is not None
        written = {"question": "Which?", "header": "Day", "options": [{"label": "a"}, {"label": "b"}]}

        asked = await outcome_of(ask, json.dumps({"questions": [{**written, "multiSelect": True}]}))

        options = (QuestionOption(label="a"), QuestionOption(label="b"))
        assert asked == Question((UserQuestion(question="Which?", header="Day", options=options, multi_select=True),))

    def test_the_built_in_tool_shows_the_bounds_of_the_seed(self) -> None:
        """Seed 002: 1-4 questions, 2-4 options, a header up to 12 characters, multiSelect false, under these names."""
        (definition,) = ToolRegistry(["ask_user_question"]).definitions()

        questions = definition["function"]["parameters"]["properties"]["questions"]
        fields = questions["items"]["properties"]
        assert (questions["minItems"], questions["maxItems"]) == (1, 4)
        assert (fields["options"]["minItems"], fields["options"]["maxItems"]) == (2, 4)
        assert (fields["header"]["type"], fields["header"]["maxLength"]) == ("string", 12)
        assert fields["multiSelect"] == {"type": "boolean", "default": False}
        assert questions["items"]["required"] == ["question", "options"]
        assert fields["options"]["items"]["required"] == ["label"]


class Speechless(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


class TestFailing:
    """Case P5: a tool that fails is an error result that names the fault, and nothing worse."""

    @pytest.mark.parametrize(
        ("raised", "reason"),
        [
            (ValueError("no table left"), "no table left"),
            (ValueError("no table left\nTraceback (most recent call last):\n  …"), "no table left"),
            (RuntimeError("Traceback (most recent call last):\n  …"), "RuntimeError"),
            (ValueError(), "ValueError"),
            (Speechless(), "Speechless"),
            (TimeoutError("the kitchen is slow"), "the kitchen is slow"),
            (StopIteration(), "StopIteration"),
            (asyncio.CancelledError(), "CancelledError"),
            (SystemExit("leaving"), "leaving"),
            (KeyboardInterrupt(), "KeyboardInterrupt"),
            (GeneratorExit(), "GeneratorExit"),
        ],
    )
    @pytest.mark.parametrize("in_thread", [True, False])
    async def test_whatever_is_raised_is_an_error_result(
        self, raised: BaseException, reason: str, in_thread: bool
    ) -> None:
        """One line, no traceback; also for what would end a thread or the whole program."""

        def book() -> None:
            raise raised

        async def book_directly() -> None:
            raise raised

        if isinstance(raised, StopIteration) and not in_thread:
            reason = "coroutine raised StopIteration"

        outcome = await outcome_of(book if in_thread else tool(name="book")(book_directly))

        assert outcome == error(f"book failed: {reason}")

    async def test_the_traceback_is_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """Whoever runs the engine can find out why."""

        def book() -> None:
            raise ValueError("no table left")

        await outcome_of(book)

        (record,) = caplog.records
        assert (record.name, record.getMessage()) == ("turnwise.tools", "book failed")
        assert record.exc_info is not None
        assert "raise ValueError" in caplog.text

    async def test_a_long_message_is_cut(self) -> None:
        """An exception may hold a whole page."""

        def book() -> None:
            raise ValueError("x" * 10_000)

        outcome = await outcome_of(book)

        assert isinstance(outcome, ToolResult)
        assert len(outcome.text) == 500

    async def test_half_characters_in_a_message_are_replaced(self) -> None:
        """The result is stored."""

        def book() -> None:
            raise ValueError("half \ud83c")

        assert await outcome_of(book) == error(f"book failed: half {REPLACEMENT}")

    async def test_a_question_that_cannot_be_asked_fails_in_a_sentence(self) -> None:
        """P33: pydantic's own message would repeat the input and name a web page."""

        @tool(exclusive=True, acts=["question"])
        def ask() -> Question:
            return Question(())

        assert await outcome_of(ask) == error("ask failed: Must have 1-4 questions")

    async def test_a_model_that_cannot_be_made_fails_without_its_input(self) -> None:
        """P33 for any pydantic model inside a tool."""

        def seat() -> None:
            Party(adults="secret")  # type: ignore[arg-type]

        assert await outcome_of(seat) == error(f"seat failed: Invalid input: {NO_INTEGER}")

    async def test_a_tool_that_cancels_its_own_task_fails_alone(self) -> None:
        """Nobody else wanted it to stop."""

        async def stop() -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return "stopped"

        assert await outcome_of(stop) == error("stop failed: CancelledError")


class TestTakingTooLong:
    """Case P5: a tool has its time, and no more."""

    async def test_a_coroutine_is_stopped_in_time(self) -> None:
        """It may clean up."""
        cleaned: list[bool] = []

        @tool(timeout=0.01)
        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        assert await outcome_of(wait) == error("wait did not finish within 0.01 s.")
        assert cleaned == [True]

    async def test_a_coroutine_that_does_not_stop_is_left_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is told to stop, and has a moment to do so."""
        monkeypatch.setattr(running, "GRACE", 0.01)
        released = asyncio.Event()
        ended = asyncio.Event()

        @tool(timeout=0.01)
        async def hold() -> None:
            try:
                await released.wait()
            except asyncio.CancelledError:
                await released.wait()
            ended.set()

        outcome = await outcome_of(hold)

        assert outcome == error("hold did not finish within 0.01 s.")
        assert not ended.is_set()
        released.set()
        await ended.wait()

    async def test_a_thread_that_hangs_is_left_behind(self, never: threading.Event) -> None:
        """There is no way to stop a thread."""

        @tool(timeout=0.01)
        def hang() -> None:
            never.wait()

        assert await outcome_of(hang) == error("hang did not finish within 0.01 s.")

    async def test_a_thread_that_was_left_behind_is_not_heard_again(self, never: threading.Event) -> None:
        """Progress of a call that has its result would confuse whoever watches."""
        shown: list[str] = []
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        @tool(timeout=0.05)
        def hang(it: ToolContext) -> None:
            it.progress("begun")
            never.wait()
            it.progress("late")
            loop.call_soon_threadsafe(ended.set)

        await run(hang, "{}", context(shown.append))
        never.set()
        await ended.wait()

        assert shown == ["begun"]

    def test_a_thread_that_hangs_does_not_hold_the_process(self) -> None:
        """The process ends when the program does: a fresh Python runs a tool that never returns, and goes home."""
        program = (
            "import asyncio, threading\n"
            "from turnwise.effects.tools.context import ToolContext\n"
            "from turnwise.effects.tools.run import run\n"
            "from turnwise.effects.tools.tool import tool\n"
            "@tool(timeout=0.05)\n"
            "def hang() -> None:\n"
            "    threading.Event().wait()\n"
            "print(asyncio.run(run(hang, '{}', ToolContext('c', 'c/1', 'x', print))).text)\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)

        assert (done.returncode, done.stdout, done.stderr) == (0, "hang did not finish within 0.05 s.\n", "")


class TestCancelling:
    """When the caller is cancelled, so is the tool, and `CancelledError` passes."""

    async def test_a_coroutine_is_stopped_before_the_caller_goes_on(self) -> None:
        """What it cleans up is clean when the cancel is acknowledged."""
        begun = asyncio.Event()
        cleaned: list[bool] = []

        async def wait() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        task = asyncio.create_task(outcome_of(wait))
        await begun.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True]

    async def test_one_that_finishes_all_the_same_has_finished(self) -> None:
        """What it did is done, and its result says so."""
        begun = asyncio.Event()

        async def pay() -> str:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "paid"

        task = asyncio.create_task(outcome_of(pay))
        await begun.wait()
        task.cancel()

        assert (await task).text == "paid"

    async def test_one_that_breaks_while_it_is_stopped_was_stopped(self) -> None:
        """That it could not clean up is no result of what it was asked for."""
        begun = asyncio.Event()

        async def pay() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is gone")

        task = asyncio.create_task(outcome_of(pay))
        await begun.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_a_thread_is_left_to_itself(self, never: threading.Event) -> None:
        """The caller goes on at once; what the thread returns later reaches nobody."""
        begun = asyncio.Event()

        def hang(it: ToolContext) -> None:
            it.progress("begun")
            never.wait()

        task = asyncio.create_task(run(tool(hang), "{}", context(lambda line: begun.set())))
        await begun.wait()
        cancelled_at = time.monotonic()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - cancelled_at < running.GRACE

    async def test_many_tools_that_hang_do_not_starve_one_that_works(self, never: threading.Event) -> None:
        """Each thread is its own: there is no pool to be used up."""

        @tool(timeout=0.05)
        def hang() -> None:
            never.wait()

        def work() -> str:
            return "worked"

        hanging = [asyncio.create_task(outcome_of(hang)) for _ in range(64)]
        worked = await outcome_of(work)
        hung = await asyncio.gather(*hanging)

        assert worked == ToolResult(text="worked")
        assert set(hung) == {error("hang did not finish within 0.05 s.")}
