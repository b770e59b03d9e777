"""Methods are tools of the object that they are taken from."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from turnwise import ConfigurationError, Engine, Tool, ToolContext, tool, tools_of
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult
from turnwise.testing import ScriptedLlm, call

from ...support.cases import holds_for
from ...support.tools import find_table, outcome_of, resolve_call, tool_context


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
