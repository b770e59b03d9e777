"""A turn is one of a few classes, one for each status."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from turnwise import (
    CancelledTurn,
    CompletedTurn,
    EndedTurn,
    Engine,
    FailedTurn,
    IncompleteTurn,
    Limits,
    Policy,
    QueuedTurn,
    RunningTurn,
    Turn,
    TurnEndedUpdate,
    Usage,
    UserQuestion,
    WaitsForAnswer,
    WaitsForApproval,
    WaitsForResolution,
    tool,
)
from turnwise.engine.turns import BaseTurn, TurnStatus
from turnwise.states import ToolCall
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, failure, reply

from ..support.cases import holds_for
from ..support.engine_scenarios import QUESTION, Gate, answers_after


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "Paid."


class TestTheKinds:
    """What a program may rely on for every kind."""

    def test_each_status_has_its_class(self) -> None:
        """The classes of the union have the statuses, each one of them."""
        statuses = [{one.name: one for one in dataclasses.fields(kind)}["status"].default for kind in get_args(Turn)]

        assert statuses == list(get_args(TurnStatus))

    @holds_for("kind", get_args(Turn))
    def test_each_has_every_attribute(self, kind: type[BaseTurn]) -> None:
        """A program that asks only for the status finds the attributes of all turns, in the same order."""
        assert [one.name for one in dataclasses.fields(kind)] == [one.name for one in dataclasses.fields(BaseTurn)]

    def test_what_waits_is_made_with_what_it_waits_for(self) -> None:
        """A turn without the call that it waits for cannot be made."""
        with pytest.raises(TypeError):
            WaitsForAnswer(number=1)  # type: ignore[call-arg]


class TestWhatTheEngineReturns:
    """The class of the turn that a request returns."""

    async def test_turns_that_have_ended(self, database: Path) -> None:
        """Completed, incomplete, failed."""
        llm = ScriptedLlm([reply("Hello."), call("unknown"), failure("authentication")])
        one_request = Policy(limits=Limits(requests=1, last="plain"))
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            completed = await conversation.send("One")
            await conversation.set_policy(one_request)
            incomplete = await conversation.send("Two")
            failed = await conversation.send("Three")

        assert type(completed) is CompletedTurn
        assert type(incomplete) is IncompleteTurn
        assert type(failed) is FailedTurn
        assert failed.failure
        assert (completed.questions, completed.call_id, completed.call) == ((), None, None)

    async def test_turns_that_wait(self, database: Path) -> None:
        """A question, an approval, and the end of a turn that was cancelled."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), call("pay", amount=5)])
        async with Engine.open(database, model=llm, tools=["ask_user_question", pay]) as engine:
            conversation = await engine.create()
            asked = await conversation.send("Book")
            assert isinstance(asked, WaitsForAnswer)
            held = await conversation.answer({asked.questions[0].question: "6:30 PM"})
            assert isinstance(held, WaitsForApproval)
            await conversation.cancel()
            (cancelled,) = await conversation.turns()

        assert (held.call.name, held.call.call_id) == ("pay", held.call_id)
        assert type(cancelled) is CancelledTurn

    async def test_turns_that_nobody_waited_for(self, database: Path) -> None:
        """Running, and queued with the number 0; each is a `Turn`."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create(policy=Policy(when_busy="queue"))
            running = await conversation.send("One", wait=False)
            queued = await conversation.send("Two", wait=False)
            gate.opened.set()

        assert (running, queued) == (RunningTurn(number=1), QueuedTurn())
        assert isinstance(running, Turn)
        assert queued.number == 0


class TestAsJson:
    """A turn as a server sends it."""

    def turns(self) -> list[Turn]:
        """Return one turn of each kind, with everything set that it can have."""
        usage = Usage(input_tokens=5, output_tokens=7, cost=0.25)
        said: dict[str, Any] = {"reply": "Hi.", "deliveries": ("Hi.",), "usage": usage, "profile": "cook"}
        question = UserQuestion(question="When?")
        made = ToolCall(call_id="c", name="pay", raw_arguments='{"amount": 5}')
        broken = ToolCall(call_id="c", name="pay", raw_arguments="[5")
        return [
            CompletedTurn(number=1, final_content="Hi.", user_response="Hi.", **said),
            IncompleteTurn(number=2, truncated=True, limit="requests", failure="Not verified.", **said),
            FailedTurn(number=3, failure="No key.", **said),
            CancelledTurn(number=4, silent=True),
            WaitsForAnswer(number=5, questions=(question,), call_id="c", **said),
            WaitsForApproval(number=6, call_id="c", call=made),
            WaitsForResolution(number=7, call_id="c", call=broken),
            RunningTurn(number=8),
            QueuedTurn(),
        ]

    def test_each_kind_fits_the_schema(self) -> None:
        """What is sent is valid, and the schema names everything that is sent."""
        schema = TypeAdapter(BaseTurn).json_schema(mode="serialization")
        for turn in self.turns():
            sent = json.loads(json.dumps(turn.data, allow_nan=False))

            assert sent == turn.data
            assert sent.keys() <= schema["properties"].keys()
            Draft202012Validator(schema).validate(sent)
        assert [type(turn) for turn in self.turns()] == list(get_args(Turn))

    def test_it_is_the_data_of_its_end(self) -> None:
        """A client reads the answer to a request as it reads the update `turn_ended`."""
        for turn in self.turns():
            if isinstance(turn, EndedTurn):
                assert turn.data == TurnEndedUpdate.of((1, 1), turn).data

    def test_what_it_waits_for(self) -> None:
        """The questions, or the call with its arguments as an object; a text that is no JSON object as it is."""
        asks, approves, doubts, runs = (turn.data for turn in self.turns()[4:8])

        assert (asks["questions"], asks["call_id"]) == ([{"question": "When?", "options": []}], "c")
        assert (approves["call"]["arguments"], approves["call_id"]) == ({"amount": 5}, "c")
        assert (doubts["call"]["arguments"], doubts["call"]["raw_arguments"]) == ({}, "[5")
        assert not {"questions", "call_id", "call"} & runs.keys()
