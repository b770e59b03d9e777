"""The tools of an application: found by name, offered to a model, and read from sources."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.effects.tools.normalization import MAX_ARGUMENTS
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.schema_arguments import SchemaArguments
from turnwise.effects.tools.tool import AnyTool, Tool, make_tool, tool
from turnwise.states.errors import ConfigurationError
from turnwise.states.openai_writing import legal_name
from turnwise.states.values.messages import ToolCall

from ...support.cases import holds_for
from ...support.tools import NOT_AN_INTEGER, REPLACEMENT, Party, find_table, resolve_call, tool_context, untyped

# --- The registry offers tools to models, and checks the calls of their responses.


class TestTools:
    """The tools of an engine, by name."""

    def test_tools_are_offered_in_the_order_given(self) -> None:
        """A plain function is made a tool, a built-in tool is given by name, and the definitions are made once."""

        def plain(n: int) -> None: ...

        registry = ToolRegistry([plain, "ask_user_question", find_table])

        definitions = registry.definitions()
        assert [definition["function"]["name"] for definition in definitions] == [
            "plain",
            "ask_user_question",
            "find_table",
        ]
        assert all(again is first for again, first in zip(registry.definitions(), definitions, strict=True))
        assert registry.find("find_table") is find_table
        assert registry.find("gone") is None

    @pytest.mark.parametrize(
        ("tools", "sentence"),
        [
            (
                ["ask_users"],
                f"There is no built-in tool called ask_users. Known: {', '.join(BUILT_IN)}.",
            ),
            ([find_table, find_table], "There are two tools called find_table."),
            (["ask_user_question"] * 2, "There are two tools called ask_user_question."),
            ([untyped], "The parameter day of untyped has no type."),
            ("ask_user_question", "Tools must be given as a list."),
        ],
    )
    def test_tools_that_cannot_be_offered_are_refused(self, tools: Any, sentence: str) -> None:
        """Unknown names, two tools of one name, and functions that cannot be tools."""
        with pytest.raises(ConfigurationError) as refused:
            ToolRegistry(tools)

        assert refused.value.sentence == sentence


VALID = {"cuisine": "sushi", "party": {"adults": 2}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class TestCalls:
    """The calls of a response, with what the registry knows of them at that moment."""

    def test_a_valid_call_has_the_declarations_of_its_tool(self) -> None:
        """The machine decides by these, so a replay needs no registry."""

        @tool(exclusive=True, acts=["question"], crash="idempotent")
        def ask() -> None: ...

        assert resolve_call({}, ask, name="ask") == ToolCall(
            call_id="call_2_0", name="ask", provider_id="p", exclusive=True, crash="idempotent", acts=("question",)
        )

    def test_ids_are_unique_whatever_the_provider_sent(self) -> None:
        """P29: the same id twice in one response, an empty id, and the same ids in the next response."""
        calls = [ModelCall("call_0", "find_table"), ModelCall("call_0", "find_table"), ModelCall("", "find_table")]
        registry = ToolRegistry([find_table])

        calls_of_both = [*registry.resolve_calls(2, calls), *registry.resolve_calls(5, calls)]

        assert len({call.call_id for call in calls_of_both}) == 6
        assert [call.provider_id for call in calls_of_both] == ["call_0", "call_0", ""] * 2

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("find_tables", "There is no tool called find_tables. Known: find_table."),
            ("", "There is no tool called (no name). Known: find_table."),
            ("x" * 10_000, f"There is no tool called {'x' * 99}…. Known: find_table."),
        ],
    )
    def test_a_call_of_an_unknown_tool_is_a_fault(self, name: str, sentence: str) -> None:
        """P5: the fault names the unknown tool and those that exist."""
        assert resolve_call(VALID, name=name).fault == sentence

    def test_of_many_tools_the_similar_ones_come_first(self) -> None:
        """The sentence is of bounded length, and says how many it leaves out."""

        def plain() -> None: ...

        many = [make_tool(plain, name=f"tool_number_{number}") for number in range(300)]
        fault = ToolRegistry([*many, find_table]).resolve_calls(1, [ModelCall("p", "findTable")])[0].fault

        assert fault is not None
        assert fault.startswith("There is no tool called findTable. Known: find_table, tool_number_0, ")
        assert fault.endswith(" more.")
        assert len(fault) < 400

    def test_any_call_is_a_fault_without_tools(self) -> None:
        """Models make up calls of tools that were not offered."""
        (call,) = ToolRegistry().resolve_calls(1, [ModelCall("p", "find_table")])

        assert call.fault == "There is no tool called find_table. There are no tools."

    @pytest.mark.parametrize("arguments", ["[]", '"[]"', '"x"', "3", "true", json.dumps(json.dumps("text"))])
    def test_arguments_that_are_not_a_json_object_are_a_fault(self, arguments: str) -> None:
        """P5: the arguments are kept as they are."""
        call = resolve_call(arguments)

        assert call.fault == "Invalid input: the arguments are not a JSON object"
        assert call.raw_arguments == arguments

    @holds_for(
        ("arguments", "told"),
        [
            ("{", "EOF while parsing an object at line 1 column 1"),
            ('{"cuisine": "a"', "EOF while parsing an object at line 1 column 15"),
            ('{"cuisine": "a",}', "trailing comma at line 1 column 17"),
            ('{"cuisine": "a"} {}', "trailing characters at line 1 column 18"),
            ('{"cuisine": "a"}<|call|>', "trailing characters at line 1 column 17"),
            ('{"cuisine": NaN}', "expected value at line 1 column 13"),
            ("{'cuisine': 'a'}", "key must be a string at line 1 column 2"),
            ('```json\n{"cuisine": "a"}\n```', "expected value at line 1 column 1"),
            ("None", "expected value at line 1 column 1"),
            ("[" * 5_000, "it is nested too deeply"),
        ],
    )
    def test_arguments_that_are_not_json_are_a_fault_that_says_where(self, arguments: str, told: str) -> None:
        """P5: the sentence is one on which a model can act, and repeats nothing of the arguments."""
        call = resolve_call(arguments)

        assert call.fault == f"Invalid input: the arguments are not a JSON object: {told}"
        assert call.raw_arguments == arguments

    def test_the_arguments_of_a_call_with_a_fault_are_kept_as_they_were_written(self) -> None:
        """The model sees what it wrote, not what was made of it."""
        written = json.dumps(json.dumps({**VALID, "round": "x"}))

        call = resolve_call(written)

        assert call.raw_arguments == written
        assert call.fault is not None
        assert call.fault.startswith("Invalid input: round: ")

    def test_the_arguments_of_a_call_that_runs_are_stored_as_it_runs_with_them(self) -> None:
        """A re-run after a crash, an approval and a reader of the log see the same arguments."""
        call = resolve_call(json.dumps({**VALID, "party": json.dumps({"adults": "2"})}))

        assert (call.fault, call.arguments) == (None, {**VALID, "party": {"adults": 2}})

    @holds_for(
        ("arguments", "fault"),
        [
            ({}, "cuisine: Field required; party: Field required"),
            ({**VALID, "party": {}}, "party.adults: Field required"),
            ({**VALID, "party": {"adults": None}}, "party.adults: Input should be a valid integer"),
            ({**VALID, "party": {"adults": "two"}}, f"party.adults: {NOT_AN_INTEGER}"),
            ({**VALID, "party": {"adults": 0}}, "party.adults: at least one adult must come"),
            ({**VALID, "party": "two"}, "party: Input should be an object"),
            ({**VALID, "cuisine": None}, "cuisine: Input should be a valid string"),
            ({**VALID, "wine": "red"}, "wine: Extra inputs are not permitted"),
            ({**VALID, "parameter_0": "x"}, "parameter_0: Extra inputs are not permitted"),
            ({**VALID, "w" * 100: 1}, f"{'w' * 59}…: Extra inputs are not permitted"),
        ],
    )
    def test_arguments_that_do_not_fit_are_a_fault(self, arguments: object, fault: str) -> None:
        """P5: each invalid field is named, and its value is not repeated."""
        assert resolve_call(arguments).fault == f"Invalid input: {fault}"

    def test_a_fault_names_no_python_type(self) -> None:
        """P33: if a value may have several types, pydantic's names for them are left out, as are the values."""

        class Cat(BaseModel):
            kind: Literal["cat"]

        class Dog(BaseModel):
            kind: Literal["dog"]

        Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
        Amount = int | Annotated[str, Field(max_length=1)]

        def feed(pet: Pet, amounts: list[Amount], range: tuple[int, int]) -> None: ...

        fed = {"pet": {"kind": "secret"}, "amounts": [1, "secret"], "range": [1]}
        call = resolve_call(fed, make_tool(feed, names=locals()), name="feed")

        assert call.fault == (
            "Invalid input: pet: Input should be tagged as one of 'cat', 'dog'; "
            f"amounts.1: {NOT_AN_INTEGER}; "
            "amounts.1: String should have at most 1 character; "
            "range.1: Field required"
        )

    def test_a_fault_is_of_bounded_length(self) -> None:
        """P33: also if hundreds of fields are wrong."""
        fault = resolve_call({f"field {n}": n for n in range(1_000)}).fault

        assert fault is not None
        assert len(fault) == 500

    def test_a_validator_that_raises_anything_is_a_fault(self) -> None:
        """No error in a validator of the application keeps a response from being stored."""

        class Broken(BaseModel):
            n: int

            @field_validator("n")
            @classmethod
            def _breaks(cls, n: int) -> int:
                raise KeyError(n)

        def count(it: Broken) -> None: ...

        call = resolve_call({"it": {"n": 1}}, tool(count), name="count")

        assert call.fault == "Invalid input: the arguments could not be checked"

    def test_arguments_that_are_too_long_are_not_kept(self) -> None:
        """Arguments are stored and sent back to the model, so their length is limited."""
        call = resolve_call({**VALID, "cuisine": "x" * MAX_ARGUMENTS})

        assert call.fault == "Invalid input: the arguments are longer than 1,000,000 characters"
        assert call.raw_arguments == "{}"

    @pytest.mark.parametrize("arguments", ["", " \n"])
    def test_blank_arguments_are_an_empty_object(self, arguments: str) -> None:
        """Some models write nothing for a tool without parameters."""

        def now() -> None: ...

        call = resolve_call(arguments, now, name="now")

        assert (call.raw_arguments, call.fault) == ("{}", None)

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("\ud83c", REPLACEMENT),
            ("\\ud83c", "\\ufffd"),
            ("\\uD83C\\ud83c\\udf63", "\\ufffd\\ud83c\\udf63"),
            ("\\\\ud83c", "\\\\ud83c"),
            ("\\udf63", "\\ufffd"),
            ("\ud83c\udf63", "🍣"),
        ],
    )
    def test_half_characters_are_replaced(self, given: str, kept: str) -> None:
        """A model that stops within an emoji leaves half of it, either as a lone surrogate or as its escape."""
        call = resolve_call(f'{{"cuisine": "{given}", "party": {{"adults": 1}}}}')

        assert call.fault is None
        assert call.raw_arguments == f'{{"cuisine": "{kept}", "party": {{"adults": 1}}}}'

    def test_half_characters_in_names_are_replaced(self) -> None:
        """The name and the provider's id of a call are stored."""
        (call,) = ToolRegistry([find_table]).resolve_calls(1, [ModelCall("\ud83c", "x\ud83c")])

        assert (call.provider_id, call.name) == (REPLACEMENT, f"x{REPLACEMENT}")
        assert call.fault == f"There is no tool called x{REPLACEMENT}. Known: find_table."

    @given(JSON.map(json.dumps) | st.text(st.characters()), st.text(st.characters()) | st.just("ask_user_question"))
    def test_every_call_can_be_stored(self, arguments: str, name: str) -> None:
        """Whatever its name and arguments are; its fault has a bounded length."""
        (call,) = ToolRegistry([find_table, "ask_user_question"]).resolve_calls(1, [ModelCall("p", name, arguments)])

        assert ToolCall.model_validate_json(call.to_json()) == call
        assert call.fault is not None
        assert len(call.fault) <= 500

    @given(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers(min_value=1),
        st.dates() | st.none(),
        st.integers(),
    )
    def test_valid_arguments_reach_the_function_unchanged(
        self, cuisine: str, adults: int, day: date | None, round: int
    ) -> None:
        """In the types of the function's parameters. A null by which the model gives nothing is not stored."""
        arguments = {"cuisine": cuisine, "party": {"adults": adults}, "day": day, "round": round}
        given = {name: value for name, value in arguments.items() if value is not None}
        text = json.dumps(given, default=str)
        assert json.loads(resolve_call(json.dumps(arguments, default=str)).raw_arguments) == json.loads(text)

        call = resolve_call(text)

        assert (call.fault, call.raw_arguments) == (None, text)
        read = find_table.arguments.read(call.raw_arguments, tool_context())
        assert read == {**arguments, "party": Party(adults=adults)}


# --- Tools that come and go while an engine is open.


class ColonTool(Tool[..., Any]):
    """A tool with a colon in its name."""

    names: ClassVar[re.Pattern[str]] = re.compile(r"\w+:\w+")


def served(name: str, schema: dict[str, Any] | None = None) -> AnyTool:
    """A tool of a server, which returns its arguments."""

    def echo(**arguments: Any) -> dict[str, Any]:
        return arguments

    arguments = SchemaArguments(echo, {"type": "object"} if schema is None else schema)
    return ColonTool(name=name, description="", arguments=arguments, function=echo)


class Source:
    """A source whose tools the test changes."""

    def __init__(self, *tools: AnyTool) -> None:
        self.version = 0
        self._tools = tools

    def change(self, *tools: AnyTool) -> None:
        """Offer these tools from now on."""
        self._tools = tools
        self.version += 1

    def tools(self) -> Iterable[AnyTool]:
        """Return the tools."""
        return self._tools

    def approver_of(self, name: str) -> None:
        """Nobody must approve anything."""

    def owns(self, name: str) -> bool:
        """Whether the name begins with that of a server of this source."""
        return name.startswith(("x:", "y:"))


@tool
def look() -> str:
    """Look."""
    return "seen"


def offered(registry: ToolRegistry, **choices: Any) -> list[str]:
    """Return the names of the tools that a conversation with these choices is offered."""
    allowed = registry.allowed(choices.get("chosen"), choices.get("of_profile"))
    return [definition["function"]["name"] for definition in registry.definitions(allowed)]


class TestVersions:
    """What is known of the tools is that of the current version."""

    def test_tools_come_and_go(self) -> None:
        """They are offered behind those that the engine was opened with."""
        source = Source(served("x:read"))
        registry = ToolRegistry([look], [source])
        before, first = registry.version, offered(registry)

        source.change(served("x:write"), served("y:find"))

        assert first == ["look", "x:read"]
        assert offered(registry) == ["look", "x:write", "y:find"]
        assert registry.version != before
        assert registry.find("x:read") is None

    def test_a_call_is_checked_against_the_schema_of_now(self) -> None:
        """Also if the model was offered another one."""
        source = Source(served("x:read"))
        registry = ToolRegistry([], [source])
        call = ModelCall("p", "x:read", "{}")
        (before,) = registry.resolve_calls(1, [call])
        needs_a_path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        source.change(served("x:read", needs_a_path))

        (after,) = registry.resolve_calls(2, [call])

        assert (before.fault, after.fault) == (None, "Invalid input: path: Field required")


class TestNames:
    """A tool with a name that no provider takes is offered under another name, and found by both."""

    def test_it_is_found_by_the_name_that_providers_accept(self) -> None:
        """The call is stored under its own name."""
        registry = ToolRegistry([], [Source(served("x:read"))])

        (call,) = registry.resolve_calls(1, [ModelCall("p", legal_name("x:read"), "{}")])

        assert (call.name, call.fault) == ("x:read", None)

    def test_two_tools_that_providers_could_not_tell_apart(self, caplog: pytest.LogCaptureFixture) -> None:
        """The application's own tool is kept."""
        taken = legal_name("x:read")
        own = tool(look.function, name=taken)

        registry = ToolRegistry([own], [Source(served("x:read"), served("x:write"))])

        assert offered(registry) == [taken, "x:write"]
        assert registry.find(taken) is own
        assert f"x:read is left out: providers could not tell it from {taken}" in caplog.text

    def test_a_server_may_have_a_tool_called_like_a_built_in_one(self) -> None:
        """Behind the prefix of a server of the application a name means the tool of the server, or none."""
        source = Source(served("x:respond_to_user"))
        registry = ToolRegistry(["respond_to_user"], [source])
        found = registry.find("x:respond_to_user")
        source.change()

        assert found is not None
        assert not found.acts
        assert registry.find("x:respond_to_user") is None
        assert registry.find("z:respond_to_user") is not None

    def test_an_unknown_tool_is_told_the_names_that_the_model_sees(self) -> None:
        """The tools of a server have other names in a request, and a model repeats what it reads."""
        source = Source(served("x:read"), served("x:write"))
        (call,) = ToolRegistry([look], [source]).resolve_calls(1, [ModelCall("p", "write")])

        assert call.fault is not None
        named = call.fault.partition("Known: ")[2].removesuffix(".").split(", ")
        assert sorted(named) == sorted(map(legal_name, ("look", "x:read", "x:write")))

    def test_what_is_away_is_described_as_away(self) -> None:
        """The model reads that the tool may come back."""
        registry = ToolRegistry([look], [Source()])

        (call,) = registry.resolve_calls(1, [ModelCall("p", "x:read", "{}")])

        assert call.fault == "x:read is not available now: its server is not connected, or no longer offers it."


class TestChoices:
    """Which of them a conversation is offered."""

    SOURCE: ClassVar = Source(served("x:read"), served("x:write"), served("y:find"))

    def test_every_profile_allows_them(self) -> None:
        """J9: a profile's list of tools narrows the tools of the application, not those of MCP servers."""
        registry = ToolRegistry([look, "talk"], [self.SOURCE])

        assert offered(registry, of_profile=["look"]) == ["look", "x:read", "x:write", "y:find"]
        assert offered(registry, of_profile=[]) == ["x:read", "x:write", "y:find"]

    def test_a_conversation_chooses_by_name(self) -> None:
        """One tool, or all of a server; what is not chosen is not offered, whatever the profile says."""
        registry = ToolRegistry([look], [self.SOURCE])

        assert offered(registry, chosen=["look", "y:find"]) == ["look", "y:find"]
        assert offered(registry, chosen=["x:*"]) == ["x:read", "x:write"]
        assert offered(registry, chosen=["x:*"], of_profile=["look"]) == ["x:read", "x:write"]
        assert offered(registry, chosen=["look"], of_profile=[]) == []

    def test_all_of_a_server_includes_what_it_offers_later(self) -> None:
        """The choice is stored as it was made."""
        source = Source(served("x:read"))
        registry = ToolRegistry([], [source])
        source.change(served("x:read"), served("x:write"))

        assert offered(registry, chosen=["x:*"]) == ["x:read", "x:write"]

    def test_a_star_means_nothing_where_there_is_no_server(self) -> None:
        """Names are not patterns."""
        registry = ToolRegistry([look], [self.SOURCE])

        assert offered(registry, chosen=["*", "l*", "z:*"]) == []


@pytest.mark.slow
def test_thousands_of_tools_are_looked_up_quickly(caplog: pytest.LogCaptureFixture) -> None:
    """What is known of them is computed once for each version, not for each call."""
    caplog.set_level(logging.WARNING)
    asked = 0

    class Counting(Source):
        def tools(self) -> Iterable[AnyTool]:
            nonlocal asked
            asked += 1
            return super().tools()

    registry = ToolRegistry([], [Counting(*(served(f"x:tool_{number}") for number in range(500)))])

    for number in range(500):
        assert registry.find(legal_name(f"x:tool_{number}")) is not None

    assert asked == 1
