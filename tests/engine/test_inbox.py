"""Messages said while a turn is under way, and cancelling at every moment: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from turnwise import Engine, Policy, Refused, StateChangeUpdate, tool
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ..support.agents.teams import held, team, tells_agent, tells_user
from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, assert_paired, results, until

pytestmark = BOTH_STORES

# --- Messages said while a turn is under way: they queue, they steer, or they are taken back; none is lost or doubled.


QUEUE = Policy(when_busy="queue")


def one_after_the_other(*answers: Callable[[Any], Any]) -> FunctionLlm:
    """Return a model that answers each request by the next of these functions."""
    left = list(answers)
    return FunctionLlm(lambda request: left.pop(0)(request))


def waiting_in(conversation: Any) -> list[str]:
    """Return the ids of the messages that wait."""
    return [waiting.event_id for waiting in getattr(conversation.state, "inbox", ())]


class TestQueueing:
    """A queued message begins the next turn."""

    async def test_two_messages_while_busy_become_one_turn(self, database: Database) -> None:
        """D10: messages that waited together are taken in order by one turn, which both callers get."""
        gate = Gate()
        llm = one_after_the_other(answers_after(gate, "One."), lambda request: "Both.")

        async with Engine.open(database, model=llm, policy=QUEUE) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()
            queued = [asyncio.ensure_future(conversation.send(text)) for text in ("b", "c")]
            await until(lambda: len(waiting_in(conversation)) == 2)
            gate.opened.set()
            turns = await asyncio.gather(first, *queued)

            assert [turn.reply for turn in turns] == ["One.", "Both.", "Both."]
            assert [m.text for m in await conversation.transcript()] == ["a", "One.", "b", "c", "Both."]
            assert [m.turn for m in await conversation.transcript()] == [1, 1, 2, 2, 2]
            assert (await conversation.replay()).divergence is None

    async def test_a_message_says_for_itself_what_becomes_of_it(self, database: Database) -> None:
        """`when_busy` of the message overrides that of the policy."""
        gate = Gate()
        llm = one_after_the_other(answers_after(gate, "One."), lambda request: "Two.")

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()
            queued = await conversation.send("b", when_busy="queue", wait=False, message_id="m2")
            with pytest.raises(Refused) as refused:
                await conversation.send("c")
            gate.opened.set()
            await first
            taken = await conversation.send("b", when_busy="queue", message_id="m2")

            assert (queued.status, queued.number) == ("queued", 0)
            assert refused.value.code == "busy"
            assert (taken.reply, taken.number) == ("Two.", 2)

    async def test_a_message_waits_behind_a_question(self, database: Database) -> None:
        """P19: while a question is open, a message may be queued by policy; it begins the turn after."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked."), reply("Umbrella.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"], policy=QUEUE) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            queued = asyncio.ensure_future(conversation.send("And rain?"))
            await until(lambda: bool(waiting_in(conversation)))
            answered = await conversation.answer({"When?": "6:30 PM"})

            assert (answered.reply, (await queued).reply) == ("Booked.", "Umbrella.")
            assert_paired(await conversation.transcript())

    async def test_cancelling_a_question_begins_the_turn_that_waits(self, database: Database) -> None:
        """P17: if a message waits, its turn begins in the step that ends the turn before, and the update says so."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("No rain.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"], policy=QUEUE) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            queued = asyncio.ensure_future(conversation.send("Only rain?"))
            await until(lambda: bool(waiting_in(conversation)))
            await conversation.cancel()
            turn = await queued
            await watcher.until("turn_ended", 2)
            await watcher.stop()

            assert turn.reply == "No rain."
            held, begun = [update.state for update in watcher.updates if isinstance(update, StateChangeUpdate)][:2]
            assert (held.type, len(held.inbox)) == ("awaiting_user_response", 1)
            assert (begun.type, begun.turn, begun.attempt, begun.inbox) == ("llm_requesting", 2, 1, ())
            assert_paired(await conversation.transcript())

    async def test_a_queue_survives_its_process(self, database: Database) -> None:
        """A waiting message is stored, and taken after the engine was closed and opened again."""
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with Engine.open(database, model=asking, tools=["ask_user_question"], policy=QUEUE) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            await conversation.send("And rain?", wait=False, message_id="m2")

        answering = ScriptedLlm([reply("Booked."), reply("Umbrella.")])
        async with Engine.open(database, model=answering, tools=["ask_user_question"]) as engine:
            again = await engine.get(conversation.id)
            await again.answer({"When?": "6:30 PM"})
            turn = await again.send("And rain?", message_id="m2")

        assert turn.reply == "Umbrella."


class TestSteering:
    """A steered message enters the current turn."""

    async def test_it_enters_before_the_next_request(self, database: Database) -> None:
        """P37: sent while a tool runs, it follows the results in the next request of this turn."""
        gate = Gate()

        @tool
        async def look() -> str:
            """Look."""
            await gate()
            return "seen"

        llm = ScriptedLlm([call("look"), reply("Blue, then.")])

        async with Engine.open(database, model=llm, tools=[look]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            first = asyncio.ensure_future(conversation.send("Find it"))
            await gate.arrived.wait()
            steered = asyncio.ensure_future(conversation.send("The blue one", when_busy="steer"))
            await until(lambda: bool(waiting_in(conversation)))
            gate.opened.set()
            turns = await asyncio.gather(first, steered)
            await watcher.until("turn_ended")
            await watcher.stop()

            assert turns[0] == turns[1]
            assert [m["role"] for m in llm.requests[1].messages] == ["user", "assistant", "tool", "user"]
            said = [u.data["text"] for u in watcher.updates if u.type == "message"]
            assert said == ["Find it", "The blue one", "Blue, then."]
            assert_paired(await conversation.transcript())

    async def test_it_begins_the_next_turn_if_this_one_ends_first(self, database: Database) -> None:
        """P37: if the turn makes no further request, the message begins the next turn."""
        gate = Gate()
        llm = one_after_the_other(answers_after(gate, "Done."), lambda request: "Blue, too.")

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Find it"))
            await gate.arrived.wait()
            steered = asyncio.ensure_future(conversation.send("The blue one", when_busy="steer"))
            await until(lambda: bool(waiting_in(conversation)))
            gate.opened.set()

            assert ((await first).number, (await steered).number) == (1, 2)
            assert (await steered).reply == "Blue, too."


class TestTakingBack:
    """A message leaves the inbox by entering or by being withdrawn."""

    async def test_a_withdrawn_message_never_enters(self, database: Database) -> None:
        """P37: a withdrawn message never enters, and its sender is refused; so is a withdrawal that comes too late."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "One.")), policy=QUEUE) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a", message_id="m1"))
            await gate.arrived.wait()
            queued = asyncio.ensure_future(conversation.send("b", message_id="m2"))
            await until(lambda: waiting_in(conversation) == ["m2"])
            await conversation.withdraw("m2")
            with pytest.raises(Refused) as withdrawn:
                await queued
            with pytest.raises(Refused) as too_late:
                await conversation.withdraw("m1")
            gate.opened.set()
            await first

            assert (withdrawn.value.code, too_late.value.code) == ("withdrawn", "not_waiting")
            assert [m.text for m in await conversation.transcript()] == ["a", "One."]

    async def test_closing_takes_back_what_waits(self, database: Database) -> None:
        """Closing withdraws the messages of the inbox and refuses their senders as closed."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "One.")), policy=QUEUE) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()
            queued = asyncio.ensure_future(conversation.send("b"))
            await until(lambda: bool(waiting_in(conversation)))
            await conversation.close()
            with pytest.raises(Refused) as refused:
                await queued

            assert refused.value.code == "closed"
            assert (await first).status == "cancelled"

    async def test_what_waited_for_a_turn_that_failed_begins_the_next(self, database: Database) -> None:
        """If the turn fails, a message that waits begins the next one, as one that comes a moment later does."""
        gate = Gate()

        async def fail(request: Any) -> Any:
            await gate()
            return failure("authentication")

        llm = one_after_the_other(fail, lambda request: "Both.")

        async with Engine.open(database, model=llm, policy=QUEUE) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()
            queued = asyncio.ensure_future(conversation.send("b", message_id="m2"))
            await until(lambda: bool(waiting_in(conversation)))
            gate.opened.set()
            turn = await queued

            assert (await first).status == "failed"
            assert [m.text for m in await conversation.transcript()] == ["a", "b", "Both."]
            assert (turn.number, turn.reply) == (2, "Both.")


# --- Cancelling at every moment: nothing is lost, nothing is doubled, history stays valid.


class TestCancel:
    """A user cancels the turn."""

    async def test_cancel_while_a_tool_runs(self, database: Database) -> None:
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

    async def test_a_tool_that_ignores_cancellation_delays_no_longer_than_the_deadline(
        self, database: Database
    ) -> None:
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

    async def test_a_tool_that_ends_while_it_is_cancelled_keeps_its_result(self, database: Database) -> None:
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

    async def test_cancel_while_the_model_is_asked(self, database: Database) -> None:
        """P8: it is at rest at once, and nothing is kept where nothing was shown; a late answer is ignored, also in the
        next turn."""
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

    async def test_cancel_where_nothing_runs_is_a_no_op(self, database: Database) -> None:
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

    async def test_a_late_cancel_that_names_its_turn_does_not_hit_the_next_one(self, database: Database) -> None:
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

    async def test_a_cancel_without_a_number_stops_the_turn_of_another_handle(self, database: Database) -> None:
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
    async def test_it_stops_a_turn_that_another_agent_began(
        self, database: Database, tells: Callable[[str], Any]
    ) -> None:
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

    async def test_it_stops_a_turn_that_the_schedule_began(self, database: Database) -> None:
        """The conversation woke up by itself."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "late"))) as engine:
            conversation = await engine.create(every=1, task="Look around.")
            await gate.arrived.wait()
            cancelled = await conversation.cancel()
            await conversation.set_schedule()

            assert not cancelled.no_op
            assert [turn.status for turn in await conversation.turns()][:1] == ["cancelled"]

    def test_it_stops_it_without_an_event_loop(self, database: Database) -> None:
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

    async def test_a_cancel_hits_the_message_that_its_handle_is_sending(self, database: Database) -> None:
        """P40: a cancel by a handle that is just sending is meant for the turn that its message begins."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "late"))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await asyncio.sleep(0)
            cancelled = await conversation.cancel()

            assert not cancelled.no_op
            assert (await turn).status == "cancelled"
