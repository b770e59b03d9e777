"""Whether a person must approve a call is decided when the call arrives, by the tool or by a function of its
arguments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, ToolContext, tool
from turnwise.testing import ScriptedLlm, call

from ...support.tools import Party, resolve_call


def pay(amount: int, to: str = "Ann", party: Party | None = None) -> str:
    """Pay."""
    return f"{amount} to {to}"


def is_large(amount: int, to: str, party: Party | None) -> bool:
    """Whether this is much money."""
    return amount > 100 and to != "Bob"


def raising(error: BaseException) -> Callable[[int], bool]:
    """A function that raises this error."""

    def decide(amount: int) -> bool:
        raise error

    return decide


def needs(approval: Callable[..., Any], **arguments: Any) -> bool:
    """Whether a call of `pay` with this approval needs a person."""
    return resolve_call(arguments, tool(pay, approval=approval), name="pay").approval


class TestDecisions:
    """A function decides for each call."""

    @pytest.mark.parametrize(
        ("arguments", "decision"),
        [
            ({"amount": 100}, False),
            ({"amount": 101}, True),
            ({"amount": 101, "to": "Bob"}, False),
            ({"amount": "101", "to": "Ann"}, True),
        ],
    )
    def test_it_gets_the_arguments_as_the_tool_does(self, arguments: Any, decision: bool) -> None:
        """In their types, with the defaults of the tool."""
        assert needs(is_large, **arguments) is decision

    def test_it_may_take_some_of_the_arguments(self) -> None:
        """By their names, or all of them as `**arguments`."""
        assert needs(lambda amount: amount > 3, amount=5)
        assert not needs(lambda to: to == "Bob", amount=5)
        assert needs(lambda **given: given == {"amount": 5, "to": "Ann", "party": None}, amount=5)
        assert needs(lambda amount, limit=3: amount > limit, amount=5)

    def test_it_gets_what_the_model_wrote_for_a_schema(self) -> None:
        """Nothing is filled in: if it needs an argument that the model left out, a person decides."""
        schema = {"type": "object", "properties": {"from": {"default": "x"}, "n": {"type": "number"}}}

        def made(approval: Any) -> Any:
            return tool(lambda **given: "", name="pay", parameters=schema, approval=approval)

        assert not resolve_call({"from": 1}, made(lambda **given: given != {"from": 1}), name="pay").approval
        assert not resolve_call({"n": 1.5}, made(lambda n: n > 2), name="pay").approval
        assert resolve_call({}, made(lambda n: n > 2), name="pay").approval

    @pytest.mark.parametrize(
        ("approval", "reason"),
        [
            (lambda amount: 1 / 0, "The approval of pay failed, so a person must approve the call"),
            (raising(SystemExit(1)), "The approval of pay failed, so a person must approve the call"),
            (raising(asyncio.CancelledError()), "The approval of pay failed, so a person must approve the call"),
            (raising(GeneratorExit()), "The approval of pay failed, so a person must approve the call"),
            (lambda amount: None, "The approval of pay returned NoneType, not a bool"),
            (lambda amount: 1, "The approval of pay returned int, not a bool"),
        ],
    )
    def test_one_that_fails_needs_a_person(self, approval: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
        """The log says why."""
        assert needs(approval, amount=1)
        assert reason in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_an_interrupt_of_the_program_goes_through(self) -> None:
        """Ctrl-C is not meant for the function that happens to run."""
        with pytest.raises(KeyboardInterrupt):
            needs(raising(KeyboardInterrupt()), amount=1)

    def test_one_that_returns_a_coroutine_needs_a_person(self, caplog: pytest.LogCaptureFixture) -> None:
        """It cannot be awaited. No warning about it is left behind."""

        async def later() -> bool:
            return False

        assert needs(lambda amount: later(), amount=1)
        assert "returned coroutine, not a bool" in caplog.text

    def test_it_is_not_asked_about_a_call_that_does_not_run(self) -> None:
        """Its arguments do not fit, so it could not be asked."""
        asked: list[int] = []

        call = resolve_call({"amount": "x"}, tool(pay, approval=lambda amount: asked.append(amount)), name="pay")

        assert call.fault is not None
        assert asked == []


class TestDeclarations:
    """What cannot decide is refused when the tool is made."""

    @pytest.mark.parametrize(
        ("approval", "sentence"),
        [
            ("yes", "The approval of pay must be true, false or a function of its arguments."),
            (None, "The approval of pay must be true, false or a function of its arguments."),
            (1, "The approval of pay must be true, false or a function of its arguments."),
            (bool, "The approval of pay must be true, false or a function of its arguments."),
            (lambda price: True, "The approval of pay needs price, which is not among the arguments of the tool."),
            (lambda amount, /: True, "The approval of pay needs amount, which is not among the arguments of the tool."),
            (lambda *, x: True, "The approval of pay needs x, which is not among the arguments of the tool."),
        ],
    )
    def test_an_unfit_approval_is_refused(self, approval: Any, sentence: str) -> None:
        """No bool, a class, parameters that the tool does not have."""
        with pytest.raises(ConfigurationError) as refused:
            tool(pay, approval=approval)

        assert refused.value.sentence == sentence

    def test_one_that_must_be_awaited_is_refused(self) -> None:
        """It decides at once, before the call is stored."""

        async def ask(amount: int) -> bool:
            return True

        with pytest.raises(ConfigurationError) as refused:
            tool(pay, approval=ask)

        assert refused.value.sentence == "The approval of pay must be a plain function: it decides at once."

    def test_it_cannot_ask_for_the_context(self) -> None:
        """The call is not running yet."""

        def spend(amount: int, context: ToolContext) -> None: ...

        with pytest.raises(ConfigurationError, match="needs context, which is not among"):
            tool(spend, approval=lambda amount, context: True)


async def test_the_decision_is_a_fact(tmp_path: Path) -> None:
    """It is stored on the call: another engine, whose function would decide otherwise, does not ask it again."""
    database = tmp_path / "pay.db"
    model = ScriptedLlm([call("pay", amount=5), call("pay", amount=500)])
    async with Engine.open(database, model=model, tools=[tool(pay, approval=is_large)]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Pay")
        assert turn.status == "awaiting_approval"

    never = tool(pay, approval=lambda amount: False)
    async with Engine.open(database, model=ScriptedLlm(["Paid."]), tools=[never]) as engine:
        again = await engine.get(conversation.id)
        assert again.state.type == "awaiting_approval"
        ended = await again.approve(again.state.call.call_id, True)
        said = await again.transcript()
        assert (await again.replay()).divergence is None

    assert ended.reply == "Paid."
    assert [message.text for message in said if message.role == "tool"] == ["5 to Ann", "500 to Ann"]
