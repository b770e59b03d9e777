"""One turn: its updates as they happen, and waiting for it, whoever began it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, EngineClosed, InvalidInput, ModelRequest, Refused, Settings, Update, tool
from turnwise.persistence.opening import open_store
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, reply

from ..support.engine_scenarios import Gate, Watcher, answers_after, until
from ..support.scenarios.repeated_requests import ANSWER, engine_at


@tool(crash="pure")
def look() -> str:
    """Look."""
    return "seen"


async def collect(updates: AsyncIterator[Update]) -> list[Update]:
    """Return all updates of an iterator."""
    return [update async for update in updates]


def shown(updates: list[Update]) -> list[str]:
    """Return the types of updates, and of the states that changed; without what is live."""
    return [
        update.state.type if update.type == "state_change" else update.type
        for update in updates
        if update.position is not None
    ]


DONE = ["message", "llm_requesting", "message", "delivery", "idle", "turn_ended"]


@pytest.fixture
async def engine(database: Path) -> AsyncIterator[Engine]:
    """Return an engine whose model does what it is told."""
    async with engine_at(database) as engine:
        yield engine


class TestStream:
    """`stream` shows the turn that takes its message, and nothing else."""

    async def test_it_shows_one_turn_from_its_message_to_its_end(self, engine: Engine) -> None:
        """Without a snapshot, and without what came before."""
        conversation = await engine.create()
        await conversation.send("Hello")

        updates = await collect(conversation.stream("And you?"))

        assert shown(updates) == DONE
        assert {update.turn for update in updates if update.type == "message"} == {2}
        assert updates[0].type == "message" and updates[0].text == "And you?"

    async def test_it_ends_when_a_person_is_asked(self, engine: Engine) -> None:
        """With the state change that brings the questions; then the handle can answer."""
        conversation = await engine.create()

        updates = await collect(conversation.stream("Ask?"))

        last = updates[-1]
        assert shown(updates)[-1] == "awaiting_user_response"
        assert last.type == "state_change" and last.state.call_id == conversation.state.waiting_call_id
        assert (await conversation.answer(ANSWER)).status == "completed"

    @pytest.mark.parametrize(("text", "end"), [("Pay", "awaiting_approval"), ("Fail", "turn_ended")])
    async def test_it_ends_where_the_turn_stops(self, engine: Engine, text: str, end: str) -> None:
        """Also where a person must allow a call, and where the turn fails."""
        assert shown(await collect((await engine.create()).stream(text)))[-1] == end

    async def test_tokens_are_shown(self, engine: Engine) -> None:
        """Live updates of the turn come between the stored ones."""
        updates = await collect((await engine.create()).stream("Hello"))

        assert "".join(update.text for update in updates if update.type == "token") == "Done: Hello"

    async def test_a_queued_message_shows_its_own_turn(self, database: Path) -> None:
        """Nothing is shown of the turn before it, nor of the one that follows."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Wait."))
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Second", when_busy="queue")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            gate.opened.set()
            updates = await streaming
            await first
            await conversation.send("Third")

        assert shown(updates) == DONE
        assert {update.turn for update in updates if update.type == "message"} == {2}

    async def test_a_steered_message_shows_the_turn_from_there_on(self, database: Path) -> None:
        """What the turn did before the message entered it is left out."""
        gate = Gate()

        async def look_first(request: ModelRequest) -> Any:
            if request.messages[-1]["role"] != "user":
                return reply("Done.")
            await gate()
            return call("look")

        async with Engine.open(database, model=FunctionLlm(look_first), tools=[look]) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Hello"))
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Also this", when_busy="steer")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            gate.opened.set()
            updates = await streaming
            turn = await first

        assert updates[0].type == "message" and updates[0].text == "Also this"
        assert shown(updates)[-1] == "turn_ended"
        assert {update.turn for update in updates if update.type == "turn_ended"} == {turn.number} == {1}

    @pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
    async def test_a_repeated_message_shows_the_same_again(self, database: Path, restarts: bool) -> None:
        """The stored updates up to the first stop, although the turn has gone on since; nothing is stored."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            first = await collect(conversation.stream("Ask?", message_id="m"))
            await conversation.answer(ANSWER)
            await conversation.send("Hello")
            steps = len(await conversation.events())
            again = await collect(conversation.stream("Ask?", message_id="m"))
        if restarts:
            async with engine_at(database) as engine:
                conversation = await engine.get(conversation.id)
                again = await collect(conversation.stream("Ask?", message_id="m"))
                assert len(await conversation.events()) == steps

        assert [update for update in again if update.id] == [update for update in first if update.id]

    async def test_a_message_that_is_repeated_while_its_turn_runs_is_followed(self, database: Path) -> None:
        """From its message on, to the end."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(collect(conversation.stream("Wait.", message_id="m")))
            await gate.arrived.wait()
            second = asyncio.ensure_future(collect((await engine.get(conversation.id)).stream("Wait.", message_id="m")))
            await asyncio.sleep(0.01)
            gate.opened.set()

            assert shown(await second) == shown(await first) == DONE

    async def test_a_watcher_that_lags_far_behind_misses_nothing(self, database: Path) -> None:
        """What the engine no longer keeps is read from the log."""
        async with engine_at(database, settings=Settings(kept_updates=1)) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            updates: list[Update] = []
            async for update in conversation.stream("Hello"):
                updates.append(update)
                await asyncio.sleep(0.02)

        assert shown(updates) == DONE

    @pytest.mark.slow
    async def test_leaving_early_stops_nothing_and_leaves_nothing(self, database: Path) -> None:
        """Neither `break` nor `aclose` cancels the turn; no task remains."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await asyncio.sleep(0.01)
            tasks = asyncio.all_tasks()
            async for update in conversation.stream("Wait."):
                assert update.type == "message"
                break
            async with aclosing(conversation.stream("Second", when_busy="queue")) as second:
                waiting = asyncio.ensure_future(anext(second))
                await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
                waiting.cancel()
                await asyncio.wait([waiting])
            gate.opened.set()
            turns = [await conversation.wait()]
            await until(lambda: conversation.state.book.turn == 2)
            turns.append(await conversation.wait())
            gc.collect()
            await asyncio.sleep(0.01)

            assert [turn.status for turn in turns] == ["completed", "completed"]
            assert asyncio.all_tasks() <= tasks

    @pytest.mark.parametrize(
        ("stop", "code"),
        [(lambda it: it.withdraw("m"), "withdrawn"), (lambda it: it.close(), "closed")],
        ids=["withdrawn", "closed"],
    )
    async def test_a_message_that_no_turn_takes_is_refused(
        self, database: Path, stop: Callable[[Conversation], Any], code: str
    ) -> None:
        """As `send` is."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            await gate.arrived.wait()
            streaming = asyncio.ensure_future(collect(conversation.stream("Second", message_id="m", when_busy="queue")))
            await until(lambda: len(getattr(conversation.state, "inbox", ())) == 1)
            await stop(conversation)

            with pytest.raises(Refused) as refused:
                await streaming
            assert refused.value.code == code

    async def test_what_send_refuses_is_refused(self, engine: Engine) -> None:
        """While a question is open, and for another message under the same id; what is invalid, at once."""
        conversation = await engine.create()
        await collect(conversation.stream("Ask?", message_id="m"))

        for text, options, code in (
            ("Hello", {"when_busy": "refuse"}, "awaiting_user_response"),
            ("Other", {"message_id": "m"}, "event_id_reused"),
        ):
            with pytest.raises(Refused) as refused:
                await collect(conversation.stream(text, **options))  # type: ignore[arg-type]
            assert refused.value.code == code
        with pytest.raises(InvalidInput):
            conversation.stream("")

    async def test_an_engine_that_closes_is_told(self, database: Path) -> None:
        """The turn has not ended, so the iteration does not just stop."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            streaming = asyncio.ensure_future(collect(conversation.stream("Wait.")))
            await gate.arrived.wait()

        with pytest.raises(EngineClosed):
            await streaming

    def test_a_blocking_program_iterates_plainly(self, database: Path) -> None:
        """Over the same updates."""
        llm = FunctionLlm(lambda _: reply("Here."))
        with Engine.open_blocking(database, model=llm) as engine:
            updates = list(engine.create().stream("Hi."))

        assert shown(updates) == DONE


class TestWait:
    """`wait` returns the turn under way, whoever began it."""

    async def test_the_turn_under_way_is_returned_when_it_ends(self, database: Path) -> None:
        """To another handle than the one that began it."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            waiting = asyncio.ensure_future((await engine.get(conversation.id)).wait())
            await gate.arrived.wait()
            assert not waiting.done()
            gate.opened.set()

            turn = await waiting

        assert (turn.number, turn.status, turn.reply) == (1, "completed", "Done: Wait.")

    async def test_a_turn_that_waits_for_a_person_is_returned_at_once(self, engine: Engine) -> None:
        """With its questions; the handle can answer them."""
        conversation = await engine.create()
        asked = await conversation.send("Ask?")
        other = await engine.get(conversation.id)

        assert await other.wait() == asked
        assert (await other.answer(ANSWER)).status == "completed"

    @pytest.mark.parametrize("text", ["Hello", "Fail"])
    async def test_at_rest_the_newest_turn_is_returned(self, engine: Engine, text: str) -> None:
        """Also one that failed, and the last one of a closed conversation."""
        conversation = await engine.create()
        await conversation.send("First")
        newest = await conversation.send(text)

        assert await conversation.wait() == newest
        await conversation.close()
        assert await conversation.wait() == newest

    async def test_without_a_turn_it_is_refused(self, engine: Engine) -> None:
        """There is nothing to return."""
        with pytest.raises(Refused) as refused:
            await (await engine.create()).wait()

        assert refused.value.code == "wrong_state"
        assert refused.value.sentence == "The conversation has had no turn yet."

    async def test_an_engine_that_closes_ends_the_wait(self, database: Path) -> None:
        """With `EngineClosed`."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
            await gate.arrived.wait()
            waiting = asyncio.ensure_future(conversation.wait())
            await asyncio.sleep(0.01)

        with pytest.raises(EngineClosed):
            await waiting

    async def test_a_turn_that_an_earlier_process_began_is_waited_for(self, database: Path) -> None:
        """The next engine takes it over."""
        async with engine_at(database, gate=Gate()) as engine:
            conversation = await engine.create()
            await conversation.send("Wait.", wait=False)
        async with engine_at(database) as engine:
            turn = await (await engine.get(conversation.id)).wait()

        assert (turn.number, turn.status) == (1, "completed")


class TestAnotherEngine:
    """A turn that another engine over the same store drives is found by looking at the store now and then."""

    async def test_it_is_waited_for(self) -> None:
        """By `wait`, by a message in its queue, and by a repeated request."""
        gate, clock = Gate(), ManualClock()
        store = await open_store("sqlite://")
        slow, quick = FunctionLlm(answers_after(gate, "At last.")), FunctionLlm(lambda _: reply("Here."))
        async with (
            Engine.open(store=store, model=slow) as one,
            Engine.open(store=store, model=quick, clock=clock) as other,
        ):
            driving = await one.create()
            here = await other.get(driving.id)
            sending = asyncio.ensure_future(driving.send("Hello", message_id="m"))
            await gate.arrived.wait()
            waits = [
                asyncio.ensure_future(asking)
                for asking in (
                    here.wait(),
                    here.send("Hello", message_id="m"),
                    collect(here.stream("Hello", message_id="m")),
                )
            ]
            await clock.until_asleep()
            gate.opened.set()
            turn = await sending
            assert not any(each.done() for each in waits)
            await clock.advance(1)
            waited, sent, streamed = await asyncio.gather(*waits)
            await asyncio.sleep(0.01)

            assert waited == sent == turn
            assert turn.reply == "At last."
            assert shown(streamed) == DONE
            assert clock.sleepers == ()
        await store.close()

    async def test_nobody_looks_unless_somebody_waits(self) -> None:
        """A watcher alone does not; nor does a caller whose own engine drives the turn."""
        gate, clock = Gate(), ManualClock()
        async with Engine.open("sqlite://", model=FunctionLlm(answers_after(gate, "At last.")), clock=clock) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            sending = asyncio.ensure_future(conversation.send("Hello"))
            waiting = asyncio.ensure_future(conversation.wait())
            await gate.arrived.wait()
            await asyncio.sleep(0.01)
            sleepers = clock.sleepers
            gate.opened.set()

            assert await waiting == await sending
            assert sleepers == ()
            await watcher.stop()


class TestTurnAfter:
    """`turn_after` returns the turn as it stopped first after a request."""

    async def test_a_message_led_to_a_question_that_is_answered_by_now(self, database: Path) -> None:
        """The turn is returned as it waited then, and after the answer as it ended, also by another engine."""
        questions = [{"question": "When?", "options": [{"label": "6:30"}, {"label": "7:00"}]}]
        model = ScriptedLlm([call("ask_user_question", questions=questions), reply("Booked.")])
        async with Engine.open(database, model=model, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            asked = await conversation.send("A table", message_id="m1")
            ended = await conversation.answer({"When?": "6:30"}, request_id="a1")
            assert [await conversation.turn_after(one) for one in ("m1", "a1")] == [asked, ended]

        async with Engine.open(database, tools=["ask_user_question"]) as engine:
            again = await engine.get(conversation.id)
            assert [await again.turn_after(one) for one in ("m1", "a1")] == [asked, ended]

    async def test_a_message_that_waits_belongs_to_the_turn_that_takes_it(self, engine: Engine) -> None:
        """And not to the one that was under way when it was sent."""
        conversation = await engine.create()
        await conversation.send("Hello", message_id="m1", wait=False)
        queued = await conversation.send("And?", message_id="m2", when_busy="queue", wait=False)

        assert queued.status == "queued"
        assert [(await conversation.turn_after(one)).number for one in ("m1", "m2")] == [1, 2]

    async def test_a_request_without_a_turn(self, engine: Engine) -> None:
        """An unknown one, and one before the first turn, are refused instead of waited for."""
        conversation = await engine.create()
        await conversation.set_title("Dinner", request_id="t1")

        for request_id, sentence in (("t1", "belongs to no turn"), ("t2", "under this id")):
            with pytest.raises(InvalidInput, match=sentence):
                await conversation.turn_after(request_id)
