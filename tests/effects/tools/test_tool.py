"""What becomes a tool: functions, other callables, and the methods of objects."""

from __future__ import annotations

import functools
import inspect
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from turnwise import Engine, Tool, tools_of
from turnwise.effects.tools.callables import Docstring, read_docstring
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.tool import tool
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.messages import ToolResult
from turnwise.testing import ScriptedLlm, call

from ...support.cases import holds_for
from ...support.tools import Party, Point, Size, error, find_table, outcome_of, resolve_call, tool_context, untyped

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


# --- A function becomes a tool: its name, description and parameters are those of the function.


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


# --- What a docstring says of the parameters reaches the model, and nothing in a docstring keeps a function from being
# a tool.


GOOGLE = """
Look for a table.

Ask for one day at a time.

Args:
    cuisine: What to eat,
        for example sushi.
    party (int, optional): How many come: two by default.
    day: Which day.

Returns:
    What was found.
"""

NUMPY = """
Look for a table.

Ask for one day at a time.

Parameters
----------
cuisine : str
    What to eat,
    for example sushi.
party, day : int, optional
    Who comes, and when.

Returns
-------
str
    What was found.
"""

SPHINX = """
Look for a table.

Ask for one day at a time.

:param cuisine: What to eat,
    for example sushi.
:type cuisine: str
:param int party: How many come.
:returns: What was found.
:raises ValueError: if there is none.
"""

EPYDOC = """
Look for a table.

@param cuisine: What to eat.
@type cuisine: str
@return: What was found.
"""

NAMES = ("cuisine", "party", "day")


class TestStyles:
    """The styles of Google, NumPy and Sphinx, and that of Epydoc, which is like the last."""

    def test_google(self) -> None:
        """Lines are joined, and the other sections stay in the description."""
        assert read_docstring(inspect.cleandoc(GOOGLE), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\nReturns:\n    What was found.",
            {
                "cuisine": "What to eat, for example sushi.",
                "party": "How many come: two by default.",
                "day": "Which day.",
            },
        )

    def test_numpy(self) -> None:
        """Two parameters may share one description."""
        assert read_docstring(inspect.cleandoc(NUMPY), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\nReturns\n-------\nstr\n    What was found.",
            {
                "cuisine": "What to eat, for example sushi.",
                "party": "Who comes, and when.",
                "day": "Who comes, and when.",
            },
        )

    def test_sphinx(self) -> None:
        """Types are left out, with the parameters."""
        assert read_docstring(inspect.cleandoc(SPHINX), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\n:returns: What was found.\n"
            ":raises ValueError: if there is none.",
            {"cuisine": "What to eat, for example sushi.", "party": "How many come."},
        )

    def test_epydoc(self) -> None:
        """Its fields begin with @."""
        assert read_docstring(inspect.cleandoc(EPYDOC), NAMES) == Docstring(
            "Look for a table.\n\n@return: What was found.", {"cuisine": "What to eat."}
        )

    @pytest.mark.parametrize("heading", ["Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:"])
    def test_a_section_may_have_several_headings(self, heading: str) -> None:
        """As programs write them; an unknown section after it stays."""
        text = f"Look.\n\n{heading}\n  day: Which day.\n\nNote:\n  Not on Mondays."

        assert read_docstring(text, NAMES) == Docstring("Look.\n\nNote:\n  Not on Mondays.", {"day": "Which day."})


class TestOtherDocstrings:
    """A docstring that says nothing of the parameters is the description as it is."""

    @holds_for(
        "text",
        [
            "",
            "Look for a table.",
            "Args:",
            "Args:\n\nLook.",
            "Args:\n    something else: no parameter",
            "Parameters\n----------",
            "Parameters\n----------\nnothing of the kind",
            "Parameters of the search matter.",
            ":param:",
            ":param unknown: x",
            ":param",
            "@param",
            "Args:\n\tday\n   :\n",
            "Look.\n\nRaises:\n    ValueError: always",
        ],
    )
    def test_it_is_kept(self, text: str) -> None:
        """Also where it looks as if it had such a section."""
        assert read_docstring(text, NAMES) == Docstring(text)

    @given(
        st.lists(
            st.sampled_from(
                [
                    "Args:",
                    "Parameters",
                    "----------",
                    ":param day:",
                    "  day: x",
                    "day : int",
                    "    ",
                    "@param",
                    "\t",
                    "",
                ]
            )
            | st.text(max_size=8)
        )
    )
    def test_no_docstring_breaks_a_tool(self, lines: list[str]) -> None:
        """Whatever stands in it, and the descriptions are of parameters that exist."""

        def look(day: str) -> None: ...

        look.__doc__ = "\n".join(lines)
        made = tool(look)

        assert list(made.parameters["properties"]) == ["day"]
        assert set(made.parameters["properties"]["day"]) <= {"type", "description"}
        made.definition()["function"]["description"].encode()

    @pytest.mark.parametrize("docstring", [3, None, "half \ud83c"])
    def test_a_docstring_may_be_anything(self, docstring: Any) -> None:
        """Python does not check what is assigned to `__doc__`. Half a character is replaced."""

        def look() -> None: ...

        look.__doc__ = docstring

        assert tool(look).description in {"", "half \N{REPLACEMENT CHARACTER}"}

    @pytest.mark.slow
    def test_the_parser_is_loaded_for_such_sections_only(self) -> None:
        """A program whose docstrings are plain does not pay for it."""
        program = (
            "import sys\n"
            "from turnwise import tool\n"
            "@tool\n"
            "def look(day: str) -> None:\n"
            "    '''Look.\\n\\n    On one day.'''\n"
            "assert not {'docstring_parser', 'jsonschema_rs'} & sys.modules.keys()\n"
            "@tool\n"
            "def look(day: str) -> None:\n"
            "    '''Look.\\n\\n    Args:\\n        day: One day.'''\n"
            "assert 'docstring_parser' in sys.modules and 'jsonschema_rs' not in sys.modules\n"
        )

        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class CallablesParty(BaseModel):
    """Who comes."""

    adults: int


class TestDescriptions:
    """The schema of a tool has the descriptions of its parameters."""

    def test_the_docstring_describes_the_parameters(self) -> None:
        """Rather than the class of a parameter. What stands in the annotation or the default counts more."""

        @tool
        def book(
            day: str,
            party: CallablesParty,
            time: Annotated[str, Field(description="by annotation")],
            place: str = Field("here", description="by default"),
            notes: Annotated[str | None, Field(alias="from")] = None,
            *,
            context: ToolContext,
        ) -> None:
            """Book a table.

            Args:
                day: by docstring
                party: by docstring
                time: by docstring
                place: by docstring
                notes: by docstring
                context: by docstring
            """

        assert book.description == "Book a table."
        properties = book.parameters["properties"]
        assert {name: schema["description"] for name, schema in properties.items()} == {
            "day": "by docstring",
            "party": "by docstring",
            "time": "by annotation",
            "place": "by default",
            "from": "by docstring",
        }

    def test_a_given_description_replaces_the_docstring(self) -> None:
        """Those of the parameters stay."""

        def book(day: str) -> None:
            """Book a table.

            :param day: which day
            """

        made = tool(book, description="Get a seat.")

        assert made.description == "Get a seat."
        assert made.parameters["properties"]["day"]["description"] == "which day"


# --- Methods are tools of the object that they are taken from.


class Account:
    """An account with tools of every kind."""

    shared: ClassVar[Tool[Any, Any]] = find_table

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @property
    def balance(self) -> int:
        """Fails if it is read."""
        raise AssertionError("a property was read")

    @tool(crash="pure", timeout=5)
    async def deposit(self, amount: int) -> str:
        """Put something in.

        Args:
            amount: how much
        """
        return f"{self.owner} +{amount}"

    @tool
    @staticmethod
    def rate(currency: str) -> str:
        """The rate."""
        return f"rate of {currency}"

    @staticmethod
    @tool
    def fee(amount: int) -> str:
        """The fee."""
        return f"fee for {amount}"

    @tool
    @classmethod
    def kinds(cls, n: int) -> str:
        """The kinds."""
        return f"{cls.__name__} {n}"

    @classmethod
    @tool
    def kind(cls, n: int) -> str:
        """The kind."""
        return f"{cls.__name__} {n}"

    @tool
    @functools.lru_cache  # noqa: B019
    def history(self, days: int) -> str:
        """The history."""
        return f"{self.owner} {days}"

    def _large(self, amount: int) -> bool:
        return amount > 10 and self.owner == "Ann"

    def _ask(self, amount: int, context: ToolContext) -> str:
        return "ran" if self.owner == "Ann" else "did_not_run"

    @tool(crash="reconcile", reconcile=_ask, approval=_large)
    def withdraw(self, amount: int, context: ToolContext) -> str:
        """Take something out."""
        return f"{self.owner} -{amount} {context.call_id}"

    def plain(self, amount: int) -> str:
        """A plain method."""
        return f"{self.owner} {amount}"

    def _private(self, anything):  # type: ignore[no-untyped-def]
        """No tool."""


class Savings(Account):
    """It inherits the tools."""

    def interest(self, rate: float) -> str:
        """The interest."""
        return f"{self.owner} {rate}"

    def plain(self, amount: int) -> str:
        """Another plain method."""
        return f"saved {amount}"


ANN = Account("Ann")


class TestDeclaredInAClass:
    """`@tool` on a method."""

    @holds_for(
        ("taken", "arguments", "text"),
        [
            (ANN.deposit, '{"amount": 3}', "Ann +3"),
            (ANN.rate, '{"currency": "EUR"}', "rate of EUR"),
            (Account.rate, '{"currency": "EUR"}', "rate of EUR"),
            (ANN.fee, '{"amount": 3}', "fee for 3"),
            (Account.fee, '{"amount": 3}', "fee for 3"),
            (ANN.kinds, '{"n": 3}', "Account 3"),
            (Savings.kinds, '{"n": 3}', "Savings 3"),
            (Account.kind, '{"n": 3}', "Account 3"),
            (Savings("Bob").kind, '{"n": 3}', "Savings 3"),
            (ANN.history, '{"days": 3}', "Ann 3"),
            (ANN.withdraw, '{"amount": 3}', "Ann -3 call_2_0"),
            (Savings("Bob").deposit, '{"amount": 3}', "Bob +3"),
            (ANN.shared, '{"cuisine": "x", "party": {"adults": 1}}', "x for 1 on None, round 1"),
        ],
    )
    async def test_it_is_bound_to_the_object(self, taken: Any, arguments: str, text: str) -> None:
        """The object is no argument of the model. Static and class methods are bound as they are elsewhere."""
        (bound,) = [ToolRegistry([taken]).find(taken.name)]

        assert isinstance(bound, Tool)
        assert {"self", "cls"}.isdisjoint(bound.parameters["properties"])
        assert await outcome_of(bound, arguments) == ToolResult(text=text)

    async def test_it_can_be_called_like_a_method(self) -> None:
        """Also through the class, with the object as its first argument."""
        assert await ANN.deposit(3) == "Ann +3"
        assert await ANN.deposit(amount=3) == "Ann +3"
        assert await Account.deposit(ANN, 3) == "Ann +3"
        assert ANN.withdraw(3, tool_context()) == "Ann -3 call_2_0"

    def test_its_declarations_are_kept(self) -> None:
        """Also the functions among them, which are bound as well."""
        deposit, withdraw = ANN.deposit, ANN.withdraw

        assert (deposit.crash, deposit.timeout, deposit.description) == ("pure", 5, "Put something in.")
        assert deposit.parameters["properties"]["amount"]["description"] == "how much"
        assert withdraw.reconcile is not None
        assert withdraw.reconcile(3, tool_context()) == "ran"
        assert [resolve_call({"amount": n}, withdraw, name="withdraw").approval for n in (3, 30)] == [False, True]

    @pytest.mark.parametrize("taken", [Account.deposit, Account.withdraw, Account.history])
    def test_taken_from_the_class_it_cannot_be_offered(self, taken: Any) -> None:
        """The sentence says what to do."""
        with pytest.raises(ConfigurationError) as refused:
            ToolRegistry([taken])

        assert refused.value.sentence == (
            f"Account.{taken.name} is a method that is not bound to an object: "
            f"take it from an instance, as in Account(…).{taken.name}."
        )

    async def test_an_engine_runs_it(self) -> None:
        """From declaration to result."""

        class Desk:
            def __init__(self) -> None:
                self.rung: list[int] = []

            @tool
            async def ring(self, times: int) -> str:
                """Ring."""
                self.rung.append(times)
                return "ding"

        desk = Desk()
        async with Engine.open(
            "sqlite://", model=ScriptedLlm([call("ring", times=2), "Rung."]), tools=[desk.ring]
        ) as engine:
            await (await engine.create()).send("Ring twice")

        assert desk.rung == [2]

    def test_types_of_the_function_around_the_class_are_found(self) -> None:
        """Annotations that are strings may use names of the class body and of the functions around it."""

        class Wine(BaseModel):
            grape: str

        class Cellar:
            class Size(BaseModel):
                litres: int

            @tool
            def pour(self, wine: Wine, size: Size) -> None:
                """Pour."""

        assert list(Cellar().pour.parameters["properties"]) == ["wine", "size"]

    def test_another_decorator_may_make_it_a_tool(self) -> None:
        """One of the application, which is called in the class body."""

        def pure(function: Any) -> Any:
            return tool(function, crash="pure")

        class Shop:
            @pure
            def order(self, item: str) -> str:
                return item

        assert Shop().order.crash == "pure"
        assert Shop().order("x") == "x"


class TestPlainMethods:
    """A method that is given as a tool."""

    @pytest.mark.parametrize("taken", [Account.plain, Savings.plain, functools.partial(Account.plain)])
    def test_one_without_an_object_is_refused(self, taken: Any) -> None:
        """Its first parameter would be left to the model."""
        for give in (tool, lambda function: ToolRegistry([function])):
            with pytest.raises(ConfigurationError) as refused:
                give(taken)

            assert (
                "plain is a method that is not bound to an object: take it from an instance" in refused.value.sentence
            )

    async def test_a_bound_one_is_a_tool(self) -> None:
        """Inherited, overridden, of a class, of an instance that can be called."""
        bound = [ANN.plain, Savings("Bob").plain, functools.partial(ANN.plain), functools.partial(Account.plain, ANN)]

        results = [await outcome_of(method, '{"amount": 3}') for method in bound]

        assert [result.text for result in results if isinstance(result, ToolResult)] == [
            "Ann 3",
            "saved 3",
            "Ann 3",
            "Ann 3",
        ]


class TestAllOfAnObject:
    """`tools_of` makes tools of all public methods."""

    def test_each_public_method_is_a_tool(self) -> None:
        """Inherited ones first, in the order in which they are written; properties are not read."""
        names = ["deposit", "rate", "fee", "kinds", "kind", "history", "withdraw", "plain"]

        assert [one.name for one in tools_of(ANN)] == ["find_table", *names]
        assert [one.name for one in tools_of(Savings("Bob"))] == ["find_table", *names, "interest"]

    async def test_they_have_the_names_of_their_attributes(self) -> None:
        """Two attributes may share a function, and a partial method has the name of another one."""

        class Lamp:
            """A lamp."""

            def light(self, colour: str) -> str:
                """Light the lamp."""
                return colour

            shine = light
            warn = functools.partialmethod(light, colour="red")

        made = {one.name: one for one in tools_of(Lamp())}

        assert list(made) == ["light", "shine", "warn"]
        assert await outcome_of(made["shine"], '{"colour": "blue"}') == ToolResult(text="blue")

    async def test_they_are_bound(self) -> None:
        """The method that overrides another is taken."""
        registry = ToolRegistry(tools_of(Savings("Bob")))

        plain = registry.find("plain")
        assert plain is not None
        assert await outcome_of(plain, '{"amount": 3}') == ToolResult(text="saved 3")

    def test_options_are_for_all_that_have_none(self) -> None:
        """A method that was declared by `@tool` keeps its own."""
        made = {one.name: one for one in tools_of(Savings("Bob"), crash="idempotent", timeout=7)}

        assert [made[name].crash for name in ("plain", "interest", "deposit")] == ["idempotent", "idempotent", "pure"]
        assert [made[name].timeout for name in ("plain", "interest", "deposit")] == [7, 7, 5]

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (Account, "tools_of takes an object, and Account is a class: make an instance of it."),
            (object(), "An object of the class object has no public methods."),
            (7, "An object of the class int has no public methods."),
        ],
    )
    def test_what_has_no_methods_is_refused(self, given: Any, sentence: str) -> None:
        """In one sentence."""
        with pytest.raises(ConfigurationError) as refused:
            tools_of(given)

        assert refused.value.sentence == sentence

    def test_a_method_that_a_model_could_not_call_is_refused(self) -> None:
        """The sentence names it."""

        class Shop:
            def order(self, item):  # type: ignore[no-untyped-def]
                """Order."""

        with pytest.raises(ConfigurationError) as refused:
            tools_of(Shop())

        assert refused.value.sentence == "The parameter item of order has no type."
