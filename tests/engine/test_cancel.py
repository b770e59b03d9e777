"""Cancelling at every moment: nothing is lost, nothing is doubled, history stays valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Engine,
    Policy,
    tool,
)
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ..support.agents.teams import held, team, tells_agent, tells_user
from ..support.engine_scenarios import Gate, answers_after, assert_paired, results


class TestCancel:
    """A user cancels the turn."""

    async def test_cancel_while_a_tool_runs(self, database: Path) -> None:
        """P6: a keeps its result, b is aborted, b and c have results that say so; the next history is valid."""
        gate = Gate()

        @tool
        def note(word: str) -> str:
            """Write down a word."""
            return word

        @tool
        async def waits() -> None:
            """Wait."""
            await gate()

        llm = ScriptedLlm([calls(call("note", word="a"), call("waits"), call("note", word="c")), reply("On we go.")])

        async with Engine.open(database, model=llm, tools=[note, waits]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            cancelled = await conversation.cancel()
            said = await conversation.transcript()
            again = await conversation.send("Go on")

        assert not cancelled.no_op
        assert (await turn).status == "cancelled"
        assert results(said) == ["a", "Cancelled by user", "Skipped: the turn was cancelled"]
        assert again.reply == "On we go."
        assert [m["role"] for m in llm.requests[1].messages] == ["user", "assistant", "tool", "tool", "tool", "user"]

    async def test_a_tool_that_ignores_cancellation_delays_no_longer_than_the_deadline(self, database: Path) -> None:
        """P6: a tool that ignores the cancel is abandoned at the deadline; its late result changes nothing."""
        gate = Gate()

        @tool
        async def stubborn() -> str:
            """Never stop."""
            while not gate.opened.is_set():
                try:
                    await gate()
                except asyncio.CancelledError:
                    continue
            return "too late"

        llm = ScriptedLlm([call("stubborn")])

        async with Engine.open(database, model=llm, tools=[stubborn]) as engine:
            conversation = await engine.create(policy=Policy(cancel_deadline=0.05))
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            async with asyncio.timeout(60):
                await conversation.cancel()
            at_rest = conversation.state
            gate.opened.set()
            await asyncio.sleep(0.01)

            assert (await turn).status == "cancelled"
            assert results(await conversation.transcript()) == ["Cancelled by user"]
            assert conversation.state == at_rest

    async def test_a_tool_that_ends_while_it_is_cancelled_keeps_its_result(self, database: Path) -> None:
        """P7: a tool that finishes in spite of the cancel has one result, its own."""
        gate = Gate()

        @tool
        async def finishes() -> str:
            """Finish, whatever happens."""
            try:
                await gate()
            except asyncio.CancelledError:
                return "done all the same"
            return "done"

        async with Engine.open(database, model=ScriptedLlm([call("finishes")]), tools=[finishes]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            await conversation.cancel()

            assert (await turn).status == "cancelled"
            assert_paired(await conversation.transcript())
            assert len(results(await conversation.transcript())) == 1

    async def test_cancel_while_the_model_is_asked(self, database: Path) -> None:
        """P8: it is at rest at once, without half a message; a late answer is ignored, also in the next turn."""
        gate = Gate()
        answers = [answers_after(gate, "too late"), lambda request: "fresh"]

        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            await conversation.cancel()
            at_rest = conversation.state.type
            fresh = await conversation.send("Again")
            said = await conversation.transcript()

        assert (await turn).status == "cancelled"
        assert at_rest == "idle"
        assert fresh.reply == "fresh"
        assert [message.text for message in said] == ["Hi", "Again", "fresh"]

    async def test_cancel_where_nothing_runs_is_a_no_op(self, database: Path) -> None:
        """P10: in Idle, Failed and Closed a cancel does nothing, and says so."""
        llm = ScriptedLlm([failure("authentication")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            idle = await conversation.cancel()
            await conversation.send("Hi")
            failed = await conversation.cancel()
            await conversation.close()
            closed = await conversation.cancel()

        assert (idle.no_op, failed.no_op, closed.no_op) == (True, True, True)

    async def test_a_late_cancel_that_names_its_turn_does_not_hit_the_next_one(self, database: Path) -> None:
        """P40: a click names the turn that its user saw; a late one does not stop the next turn."""
        gate = Gate()
        answers: list[Any] = [lambda request: "first", answers_after(gate, "second")]

        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            mine = await engine.create()
            first = await mine.send("One")
            other = await engine.get(mine.id)
            turn = asyncio.ensure_future(other.send("Two"))
            await gate.arrived.wait()
            late = await mine.cancel(first.number)
            gate.opened.set()

            assert late.no_op
            assert (await turn).status == "completed"

    async def test_a_cancel_without_a_number_stops_the_turn_of_another_handle(self, database: Path) -> None:
        """It means the turn under way, also if its own handle has seen only an earlier one."""
        gate = Gate()
        answers: list[Any] = [lambda request: "first", answers_after(gate, "second")]

        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            mine = await engine.create()
            await mine.send("One")
            other = await engine.get(mine.id)
            turn = asyncio.ensure_future(other.send("Two"))
            await gate.arrived.wait()
            cancelled = await mine.cancel()

            assert not cancelled.no_op
            assert (await turn).status == "cancelled"

    @pytest.mark.parametrize("tells", [tells_user, tells_agent])
    async def test_it_stops_a_turn_that_another_agent_began(self, database: Path, tells: Callable[[str], Any]) -> None:
        """A message for the user, or for the agent itself, began the turn, and no handle of the user has seen it."""
        gate = Gate()

        async with team(database, fg=[held(gate, "late")], bg=[tells("It rains."), reply("Sent.")]) as agents:
            front = await agents.foreground()
            back = await agents.background(front)
            await back.send("Go")
            await gate.arrived.wait()
            cancelled = await front.cancel()

            assert not cancelled.no_op
            assert front.state.type == "idle"
            assert [turn.status for turn in await front.turns()] == ["cancelled"]

    async def test_it_stops_a_turn_that_the_schedule_began(self, database: Path) -> None:
        """The conversation woke up by itself."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "late"))) as engine:
            conversation = await engine.create(every=1, task="Look around.")
            await gate.arrived.wait()
            cancelled = await conversation.cancel()
            await conversation.set_schedule()

            assert not cancelled.no_op
            assert [turn.status for turn in await conversation.turns()][:1] == ["cancelled"]

    def test_it_stops_it_without_an_event_loop(self, database: Path) -> None:
        """The same holds for the blocking methods."""
        gate = Gate()
        answers: list[Any] = [lambda request: "first", answers_after(gate, "second")]
        llm = FunctionLlm(lambda request: answers.pop(0)(request))

        with Engine.open_blocking(database, model=llm) as engine:
            mine = engine.create()
            mine.send("One")
            other = engine.get(mine.id)
            other.send("Two", wait=False)
            cancelled = mine.cancel()

            assert not cancelled.no_op
            assert [turn.status for turn in mine.turns()] == ["completed", "cancelled"]

    async def test_a_cancel_hits_the_message_that_its_handle_is_sending(self, database: Path) -> None:
        """P40: a cancel by a handle that is just sending is meant for the turn that its message begins."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "late"))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await asyncio.sleep(0)
            cancelled = await conversation.cancel()

            assert not cancelled.no_op
            assert (await turn).status == "cancelled"
