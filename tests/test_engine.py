"""A conversation end to end: engine, store and tools are real, and a double of the model says what the test needs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    EngineClosed,
    InvalidInput,
    Limits,
    Policy,
    Questions,
    Refused,
    Retry,
    StoreError,
    ToolContext,
    Turn,
    UnknownConversation,
    Update,
    presets,
    tool,
)
from turnwise.states import Message, ToolExecuting, UserCancel, UserMessage, pending
from turnwise.testing.scripted import FunctionLlm, ScriptedLlm, call, calls, failure, reply

QUESTION = {"question": "When?", "header": "Time", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


class Gate:
    """A tool's or a model's door: a test sees when somebody arrived, and lets them through."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        self.arrived.set()
        await self.opened.wait()


@asynccontextmanager
async def full_disk(engine: Engine) -> AsyncIterator[None]:
    """While this holds, the database takes no writes, for a real reason."""

    async def query_only(value: str) -> None:
        await engine.store._database._writing.run(
            lambda connection: connection.connection.driver_connection.execute(f"PRAGMA query_only = {value}")
        )

    await query_only("ON")
    try:
        yield
    finally:
        await query_only("OFF")


def answers_after(gate: Gate, text: str) -> Callable[[Any], Any]:
    async def answer(request: Any) -> str:
        await gate()
        return text

    return answer


def results(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


def assert_paired(messages: tuple[Message, ...]) -> None:
    """Every call has exactly one result, directly behind its message, in call order."""
    left = list(messages)
    while left:
        message = left.pop(0)
        wanted = [made.call_id for made in message.tool_calls]
        got = [left.pop(0).tool_call_id for _ in wanted]
        assert got == wanted


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop its turns until this holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class Watcher:
    """Collects the updates of a conversation while a test runs."""

    def __init__(self, conversation: Conversation, after: str | None = None) -> None:
        self.updates: list[Update] = []
        self._source = conversation.updates(after)
        self._task = asyncio.ensure_future(self._collect())

    async def _collect(self) -> None:
        async for update in self._source:
            self.updates.append(update)

    def types(self) -> list[str]:
        return [update.type for update in self.updates]

    async def until(self, kind: str, count: int = 1) -> Update:
        await until(lambda: self.types().count(kind) >= count)
        return [update for update in self.updates if update.type == kind][-1]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class TestATurn:
    async def test_a_message_is_answered(self, database: Path) -> None:
        """The shortest conversation: one message, one reply, at rest again."""
        llm = ScriptedLlm([reply("Hello.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(system="Be brief.")
            turn = await conversation.send("Hi")

            assert (turn.status, turn.reply, turn.number) == ("completed", "Hello.", 1)
            assert conversation.state.type == "idle"
            assert [message["role"] for message in llm.requests[0].messages] == ["system", "user"]
        llm.assert_finished()

    async def test_a_message_sent_twice_is_said_once(self, database: Path) -> None:
        """P3: the same message_id twice succeeds both times: one row, one model call."""
        llm = ScriptedLlm([reply("Once.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi", message_id="m1")
            rows = len(await conversation.events())
            second = await conversation.send("Hi", message_id="m1")

            assert first == second
            assert len(await conversation.events()) == rows
        llm.assert_finished()

    async def test_a_message_sent_twice_at_once_is_said_once(self, database: Path) -> None:
        """P3: also while the first is being answered, when any other message is refused as busy."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Once."))) as engine:
            conversation = await engine.create()
            both = [asyncio.ensure_future(conversation.send("Hi", message_id="m1")) for _ in range(2)]
            await gate.arrived.wait()
            gate.opened.set()
            first, second = await asyncio.gather(*both)

            assert first == second

    async def test_a_message_sent_twice_is_known_after_a_restart(self, database: Path) -> None:
        """P3: what was taken is remembered by the store, not by the process."""
        async with Engine.open(database, model=ScriptedLlm([reply("Once.")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi", message_id="m1")

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await (await engine.get(conversation.id)).send("Hi", message_id="m1")

        assert again == first

    async def test_an_id_used_for_another_message_is_refused(self, database: Path) -> None:
        """The same id with other content is an error of the caller's, not the same request."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi", message_id="m1")

            with pytest.raises(Refused) as refused:
                await conversation.send("Something else", message_id="m1")

            assert refused.value.code == "event_id_reused"

    async def test_a_message_while_busy_is_refused(self, database: Path) -> None:
        """P2: a message while busy is refused with the code busy; state equal, nothing persisted, told at once."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("First"))
            await gate.arrived.wait()
            before, rows = conversation.state, await conversation.events()

            with pytest.raises(Refused) as refused:
                await conversation.send("Second")

            assert refused.value.code == "busy"
            assert conversation.state == before
            assert await conversation.events() == rows
            gate.opened.set()
            assert (await turn).reply == "Done."

    async def test_not_waiting_returns_when_the_message_is_stored(self, database: Path) -> None:
        """`wait=False` returns as soon as the message is durable."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi", wait=False)

            assert (turn.status, turn.number) == ("running", 1)
            assert [entry.event.type for entry in await conversation.events()] == ["opened", "user_message"]
            gate.opened.set()

    @pytest.mark.parametrize("text", ["", "  \n", "half a \ud83d", "x" * 1_000_001])
    async def test_a_message_that_is_none_is_refused_in_one_sentence(self, database: Path, text: str) -> None:
        """Bad input gets a typed, one-sentence error, and nothing is stored."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput) as invalid:
                await conversation.send(text)

            assert len(invalid.value.sentence) < 200
            assert "\n" not in invalid.value.sentence
            assert len(await conversation.events()) == 1

    async def test_the_model_that_failed_is_tried_again(self, database: Path) -> None:
        """P11: a failure that passes, once, then success: one answer."""
        policy = Policy(retry=Retry(base=0.001))
        llm = ScriptedLlm([failure("server_error"), reply("Here.")])

        async with Engine.open(database, model=llm) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "Here."
        llm.assert_finished()

    async def test_a_failed_turn_says_why_and_may_be_retried(self, database: Path) -> None:
        """P11: three failures with one model: Failed, in a sentence; a retry is a turn of its own."""
        policy = Policy(retry=Retry(base=0.001))
        llm = ScriptedLlm([*[failure("timeout", "The model did not answer in time.")] * 3, reply("Here.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(policy=policy)
            failed = await conversation.send("Hi")
            again = await conversation.retry()

            assert (failed.status, failed.reply) == ("failed", "")
            assert failed.failure == "Failed after 3 attempts: The model did not answer in time."
            assert (again.status, again.reply, again.number) == ("completed", "Here.", 2)
            assert [m.text for m in await conversation.transcript()] == ["Hi", "Here."]

    async def test_the_next_model_is_asked_when_the_first_fails(self, database: Path) -> None:
        """P11: with two models the second takes over when the first has failed three times."""
        policy = Policy(retry=Retry(base=0.001))
        first = ScriptedLlm([failure("rate_limit")] * 3, name="first")
        second = ScriptedLlm([reply("I am the second.")], name="second")

        async with Engine.open(database, model=first, fallback_models=[second]) as engine:
            turn = await (await engine.create(policy=policy)).send("Hi")

        assert turn.reply == "I am the second."
        first.assert_finished()

    async def test_a_limit_ends_the_turn(self, database: Path) -> None:
        """The last request of the budget goes out without tools, and the turn ends with what it brings."""

        @tool
        def look() -> str:
            """Look."""
            return "nothing"

        llm = ScriptedLlm([call("look"), reply("I found nothing.")])

        async with Engine.open(database, model=llm, tools=[look]) as engine:
            turn = await (await engine.create(policy=Policy(limits=Limits(requests=2)))).send("Look")

        assert turn.reply == "I found nothing."
        assert [request.tool_choice for request in llm.requests] == ["auto", "none"]


class TestTools:
    async def test_results_stand_in_call_order(self, database: Path) -> None:
        """P4: calls [a, b, c] run in order, one at a time, and the model is asked once after c."""
        ran: list[str] = []

        @tool
        async def note(word: str) -> str:
            """Write down a word."""
            ran.append(word)
            return f"noted {word}"

        llm = ScriptedLlm([calls(*(call("note", word=word) for word in "abc")), reply("All noted.")])

        async with Engine.open(database, model=llm, tools=[note]) as engine:
            conversation = await engine.create()
            await conversation.send("Write")
            said = await conversation.transcript()

        assert ran == ["a", "b", "c"]
        assert results(said) == ["noted a", "noted b", "noted c"]
        assert_paired(said)
        llm.assert_finished()

    @pytest.mark.parametrize(
        ("bad", "told"),
        [
            (call("breaks"), "breaks failed: the oven is cold"),
            (call("missing"), "There is no tool called missing."),
            (call("hangs"), "hangs did not finish within 0.05 s."),
            (call("note", words="x"), "Invalid input: "),
        ],
    )
    async def test_a_bad_call_does_not_hold_the_others_up(self, database: Path, bad: Any, told: str) -> None:
        """P5: b raises, does not exist, takes too long or has bad arguments: an error result, and c still runs."""

        @tool
        def note(word: str) -> str:
            """Write down a word."""
            return word

        @tool
        def breaks() -> str:
            """Break."""
            raise RuntimeError("the oven is cold")

        @tool(timeout=0.05)
        async def hangs() -> None:
            """Hang."""
            await asyncio.Event().wait()

        llm = ScriptedLlm([calls(call("note", word="a"), bad, call("note", word="c")), reply("Done.")])

        async with Engine.open(database, model=llm, tools=[note, breaks, hangs]) as engine:
            conversation = await engine.create()
            await conversation.send("Go")
            said = await conversation.transcript()

        first, second, third = results(said)
        assert (first, third) == ("a", "c")
        assert second.startswith(told)
        assert_paired(said)
        llm.assert_finished()

    async def test_ids_that_a_provider_repeats_do_not_collide(self, database: Path) -> None:
        """P29: the provider calls every call "call_0", also twice in one response: no collision, paired."""

        @tool
        def note(word: str) -> str:
            """Write down a word."""
            return word

        def script() -> list[Any]:
            return [calls(call("note", word="a"), call("note", word="b")), call("note", word="c"), reply("Done.")]

        llm = ScriptedLlm([*script(), *script()])

        async with Engine.open(database, model=llm, tools=[note]) as engine:
            conversation = await engine.create()
            await conversation.send("One")
            await conversation.send("Two")
            said = await conversation.transcript()

        ids = [message.tool_call_id for message in said if message.role == "tool"]
        assert results(said) == list("abcabc")
        assert len(set(ids)) == len(ids)
        assert_paired(said)

    async def test_a_tool_knows_its_call_and_shows_progress(self, database: Path) -> None:
        """A tool may take a ToolContext: the conversation's id, a key for this call, and progress to show."""
        seen: list[ToolContext] = []

        @tool
        async def work(context: ToolContext) -> str:
            """Work."""
            seen.append(context)
            context.progress("half way")
            await asyncio.sleep(0)
            return "worked"

        llm = ScriptedLlm([call("work"), reply("Done.")])

        async with Engine.open(database, model=llm, tools=[work]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await conversation.send("Work")
            shown = await watcher.until("tool_progress")
            await watcher.stop()

            assert seen[0].key == f"{conversation.id}/2"
            assert shown.data == {"call_id": seen[0].call_id, "text": "half way"}
            assert shown.id is None

    async def test_a_broken_performer_fails_the_call_and_not_the_engine(self, database: Path) -> None:
        """Whatever breaks inside becomes an answer; a person reads a sentence, never a traceback."""

        def explode(request: Any) -> str:
            raise ZeroDivisionError("secret detail")

        async with Engine.open(database, model=FunctionLlm(explode)) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert "secret" not in (turn.failure or "")


class TestCancel:
    async def test_cancel_while_a_tool_runs(self, database: Path) -> None:
        """P6: b is aborted; a keeps its result, b and c are told; the next message sends a valid history."""
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
        """P6: a tool that does not stop is left behind when the deadline passes; its late result changes nothing."""
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
            async with asyncio.timeout(5):
                await conversation.cancel()
            at_rest = conversation.state
            gate.opened.set()
            await asyncio.sleep(0.01)

            assert (await turn).status == "cancelled"
            assert results(await conversation.transcript()) == ["Cancelled by user"]
            assert conversation.state == at_rest

    async def test_a_tool_that_ends_while_it_is_cancelled_keeps_its_result(self, database: Path) -> None:
        """P7: one result, never two: the real one, since the tool had truly finished."""
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
        """P8: at rest at once, no half message; what comes late is ignored even after a new request began."""
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

    async def test_a_late_cancel_does_not_hit_the_next_turn(self, database: Path) -> None:
        """P40: a handle names the turn that it last saw, so its late cancel changes nothing in the next one."""
        gate = Gate()
        answers: list[Any] = [lambda request: "first", answers_after(gate, "second")]

        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            mine = await engine.create()
            await mine.send("One")
            other = await engine.get(mine.id)
            turn = asyncio.ensure_future(other.send("Two"))
            await gate.arrived.wait()
            late = await mine.cancel()
            gate.opened.set()

            assert late.no_op
            assert (await turn).status == "completed"

    async def test_a_cancel_hits_the_message_that_its_handle_is_sending(self, database: Path) -> None:
        """P40: a handle that is just sending means the turn that its own message begins."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "late"))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await asyncio.sleep(0)
            cancelled = await conversation.cancel()

            assert not cancelled.no_op
            assert (await turn).status == "cancelled"


class TestQuestions:
    @pytest.fixture
    async def asked(self, database: Path) -> AsyncIterator[tuple[Engine, Conversation, Turn]]:
        """A conversation in which "When?" was asked."""
        llm = FunctionLlm(
            lambda request: (
                reply("Booked.")
                if request.messages[-1]["role"] == "tool"
                else call("ask_user_question", questions=[QUESTION])
            )
        )
        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            yield engine, conversation, await conversation.send("A table")

    async def test_a_question_pauses_the_machine(self, asked: tuple[Engine, Conversation, Turn]) -> None:
        """P12: the question stands in the state and in the turn; nothing is in flight."""
        _, conversation, turn = asked

        assert turn.status == "awaiting_user"
        assert [question.question for question in turn.questions] == ["When?"]
        assert conversation.state.type == "awaiting_user_response"
        assert pending(conversation.state) == frozenset()

    async def test_the_answer_goes_on(self, asked: tuple[Engine, Conversation, Turn]) -> None:
        """P14: the model sees {"answers": {question: label}} as the result of its call."""
        _, conversation, _ = asked

        turn = await conversation.answer({"When?": "6:30 PM"})

        assert turn.reply == "Booked."
        assert results(await conversation.transcript()) == ['{"answers": {"When?": "6:30 PM"}}']

    @pytest.mark.parametrize(
        ("answers", "code"),
        [
            ({}, "missing_answer"),
            ({"When?": ""}, "missing_answer"),
            ({"When?": "6:30 PM", "Where?": "Here"}, "unknown_question"),
            ({"When?": ["6:30 PM", "8:15 PM"]}, "invalid_answer"),
        ],
    )
    async def test_an_answer_that_does_not_fit_leaves_the_question_open(
        self, asked: tuple[Engine, Conversation, Turn], answers: Any, code: str
    ) -> None:
        """P14: an unknown question or a missing answer is refused, named, and still waited for."""
        _, conversation, _ = asked

        with pytest.raises(Refused) as refused:
            await conversation.answer(answers)

        assert refused.value.code == code
        assert refused.value.subject in ("When?", "Where?")
        assert conversation.state.type == "awaiting_user_response"

    async def test_of_two_racing_answers_one_is_taken(self, asked: tuple[Engine, Conversation, Turn]) -> None:
        """P18: exactly one of two racing answers is accepted; the loser learns that it lost."""
        engine, conversation, _ = asked
        other = await engine.get(conversation.id)

        outcomes = await asyncio.gather(
            conversation.answer({"When?": "6:30 PM"}), other.answer({"When?": "8:15 PM"}), return_exceptions=True
        )

        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert [error.code for error in refused] == ["wrong_state"]
        assert len(results(await conversation.transcript())) == 1

    async def test_a_late_answer_does_not_hit_the_next_question(self, database: Path) -> None:
        """P40: an answer names the question that its handle saw, even if the next one has the same text."""
        asking = call("ask_user_question", questions=[QUESTION])
        llm = ScriptedLlm([asking, asking, reply("Booked.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            mine = await engine.create()
            await mine.send("A table")
            other = await engine.get(mine.id)
            await other.answer({"When?": "6:30 PM"})

            with pytest.raises(Refused) as refused:
                await mine.answer({"When?": "8:15 PM"})
            second = await other.answer({"When?": "8:15 PM"})

        assert refused.value.code == "wrong_state"
        assert second.reply == "Booked."

    async def test_cancel_ends_the_turn_by_default(self, asked: tuple[Engine, Conversation, Turn]) -> None:
        """P17: cancel while waiting: Idle, and the call has its result."""
        _, conversation, _ = asked

        cancelled = await conversation.cancel()

        assert not cancelled.no_op
        assert conversation.state.type == "idle"
        assert results(await conversation.transcript()) == ["User cancelled the question"]

    async def test_by_policy_the_model_goes_on_after_a_cancel(self, database: Path) -> None:
        """P17: with `resume` the model goes on, told that the user declined."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Then 7 PM.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create(policy=Policy(questions=Questions(cancel="resume")))
            await conversation.send("A table")
            turn = await conversation.decline()

        assert turn.reply == "Then 7 PM."
        assert "declined" in llm.requests[1].messages[-1]["content"]

    async def test_there_is_nothing_to_decline_at_rest(self, database: Path) -> None:
        """`decline` answers a question; where none is open it is refused."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            with pytest.raises(Refused) as refused:
                await (await engine.create()).decline()

        assert refused.value.code == "wrong_state"

    async def test_a_question_survives_its_process(self, database: Path) -> None:
        """A conversation that waits for a person goes on after the engine was closed and opened again."""
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with Engine.open(database, model=asking, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")

        answering = ScriptedLlm([reply("Booked.")])
        async with Engine.open(database, model=answering, tools=["ask_user_question"]) as engine:
            again = await engine.get(conversation.id)
            state = again.state
            turn = await again.answer({"When?": "6:30 PM"})

        assert state.type == "awaiting_user_response"
        assert turn.reply == "Booked."

    async def test_a_deadline_survives_its_process(self, database: Path) -> None:
        """Its deadline is absolute and is armed again when the database is opened, without anybody asking."""
        policy = Policy(questions=Questions(deadline=0.2))
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with Engine.open(database, model=asking, tools=["ask_user_question"]) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send("A table")

        going_on = ScriptedLlm([reply("I chose 6:30 PM.")], name="scripted")
        async with Engine.open(database, model=going_on, tools=["ask_user_question"]) as engine:
            await until(lambda: len(going_on.requests) == 1)
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")

            assert (await again.turns())[-1].reply == "I chose 6:30 PM."


class TestUpdates:
    async def test_a_turn_is_seen_in_order(self, database: Path) -> None:
        """P32: updates strictly increase, and a token never comes after its message."""
        llm = ScriptedLlm([reply("Hello there.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert watcher.types() == [
            "snapshot", "message", "state_change", "token", "message", "state_change", "turn_ended",
        ]  # fmt: skip
        positions = [update.position for update in watcher.updates if update.position]
        assert positions == sorted(set(positions))

    async def test_a_question_is_published_once(self, database: Path) -> None:
        """P38: one state_change of type awaiting_user_response with the questions; a cancel publishes idle, then
        turn_ended."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("A table")
            await conversation.cancel()
            await watcher.until("turn_ended")
            await watcher.stop()

        waits = [u for u in watcher.updates if u.data.get("type") == "awaiting_user_response"]
        assert [update.data["data"]["questions"] for update in waits] == [[QUESTION]]
        assert watcher.types()[-2:] == ["state_change", "turn_ended"]
        assert watcher.updates[-2].data["type"] == "idle"
        assert watcher.updates[-1].data["status"] == "cancelled"

    async def test_a_late_watcher_gets_a_snapshot_and_then_only_what_is_new(self, database: Path) -> None:
        """P32: the snapshot stands for all that was before it."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("First")
            watcher = Watcher(conversation)
            snapshot = await watcher.until("snapshot")
            await conversation.send("Second")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert [m["text"] for m in snapshot.data["transcript"]] == ["First", "One."]
        assert snapshot.data["state"]["type"] == "idle"
        assert [u.data["text"] for u in watcher.updates if u.type == "message"] == ["Second", "Two."]

    async def test_a_watcher_resumes_behind_what_it_saw(self, database: Path) -> None:
        """`updates(after=id)` gives exactly what came since, also from before this process began."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            full = Watcher(conversation, after="0.0")
            await conversation.send("First")
            await conversation.send("Second")
            await full.until("turn_ended", 2)
            await full.stop()
        stored = [update for update in full.updates if update.id is not None]

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            for seen in (0, 3, len(stored) - 1):
                again = Watcher(await engine.get(conversation.id), after=stored[seen].id)
                await until(lambda again=again, seen=seen: len(again.updates) == len(stored) - seen - 1)
                await again.stop()

                assert again.updates == stored[seen + 1 :]

    async def test_a_slow_watcher_loses_nothing_and_holds_nobody_up(self, database: Path) -> None:
        """P32: one that falls behind what is kept reads what it missed from the log."""
        turns = 5

        async with Engine.open(database, model=FunctionLlm(lambda request: "Answer.")) as engine:
            conversation = await engine.create()
            conversation._loop.feed._kept = type(conversation._loop.feed._kept)(maxlen=4)
            slow = conversation.updates("0.0")
            first = await anext(slow) if (await conversation.send("0")) else None
            for n in range(1, turns):
                await conversation.send(str(n))
            seen = [first] if first else []
            async for update in slow:
                seen.append(update)
                if [u.type for u in seen].count("turn_ended") == turns:
                    break
            await slow.aclose()

        positions = [update.position for update in seen if update.position]
        assert positions == sorted(set(positions))
        said = [update.data["text"] for update in seen if update.type == "message" and update.data["role"] == "user"]
        assert said == ["0", "1", "2", "3", "4"]

    async def test_an_id_that_is_none_is_refused(self, database: Path) -> None:
        """Bad input gets one sentence."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput):
                await anext(conversation.updates("yesterday"))


class TestClosing:
    async def test_a_closed_conversation_takes_nothing_and_can_be_read(self, database: Path) -> None:
        """P31: closed: requests are refused, watchers end, and what was said can still be read."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.close()
            await asyncio.wait_for(watcher._task, 5)

            with pytest.raises(Refused) as refused:
                await conversation.send("Hello?")
            assert refused.value.code == "closed"
            assert [message.text for message in await conversation.transcript()] == ["Hi", "Bye."]
            assert [summary.state for summary in await engine.list()] == ["closed"]

    async def test_closing_stops_what_runs(self, database: Path) -> None:
        """P31: a conversation closed while a tool runs cancels it first."""
        gate = Gate()

        @tool
        async def waits() -> None:
            """Wait."""
            await gate()

        async with Engine.open(database, model=ScriptedLlm([call("waits")]), tools=[waits]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            await conversation.close()

            assert conversation.state.type == "closed"
            assert (await turn).status == "cancelled"

    async def test_the_memory_of_a_closed_conversation_is_freed(self, database: Path) -> None:
        """P31: no task and no loop is left of it once nobody holds a handle; at rest the same holds."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye."), reply("Bye.")])) as engine:
            for ends in (True, False):
                conversation = await engine.create()
                await conversation.send("Hi")
                if ends:
                    await conversation.close()
                del conversation
                await until(lambda: gc.collect() >= 0 and not engine._loops)

            assert len(asyncio.all_tasks()) == 1

    async def test_an_engine_closes_in_the_middle_of_a_turn_and_keeps_what_was_stored(self, database: Path) -> None:
        """P31: what was acknowledged is there when it is opened again; whoever waited is told."""
        gate = Gate()

        engine = await Engine.open(database, model=FunctionLlm(answers_after(gate, "never")))
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await gate.arrived.wait()
        await engine.close()
        await engine.close()

        with pytest.raises(EngineClosed):
            await turn
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await engine.get(conversation.id)
            assert [message.text for message in await again.transcript()] == ["Hi"]

    async def test_a_busy_conversation_whose_process_died_is_interrupted(self, database: Path) -> None:
        """It is listed as interrupted; every request but reading is refused with that code."""
        gate = Gate()
        engine = await Engine.open(database, model=FunctionLlm(answers_after(gate, "never")))
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await engine.close()

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await engine.get(conversation.id)
            listed = await engine.list()
            asked = [again.send("Hello?"), again.cancel(), again.close(), again.retry(), again.answer({"x": "y"})]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)

            assert [summary.state for summary in listed] == ["interrupted"]
            assert [getattr(outcome, "code", outcome) for outcome in outcomes] == ["interrupted"] * 5
            assert len(await again.events()) == 2
            assert (await again.replay()).divergence is None

    async def test_one_that_runs_is_not_listed_as_interrupted(self, database: Path) -> None:
        """Busy in this engine is not interrupted."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            listed = await engine.list()
            gate.opened.set()
            await turn

        assert [summary.state for summary in listed] == ["llm_requesting"]


class TestTheStoreBelow:
    async def test_a_second_engine_on_the_file_is_refused(self, database: Path) -> None:
        """P42: one sentence, and the first goes on."""
        async with Engine.open(database, model=ScriptedLlm([reply("Still here.")])) as engine:
            conversation = await engine.create()

            with pytest.raises(StoreError) as refused:
                await Engine.open(database, model=ScriptedLlm([]))

            assert "\n" not in refused.value.sentence
            assert (await conversation.send("Hi")).reply == "Still here."

    async def test_an_unknown_conversation(self, database: Path) -> None:
        """Bad input: an id that nobody has."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            with pytest.raises(UnknownConversation):
                await engine.get("nobody")
            with pytest.raises(UnknownConversation):
                await engine.delete("nobody")

    async def test_delete_really_deletes(self, database: Path) -> None:
        """What was said is gone from the files, too."""
        async with Engine.open(database, model=ScriptedLlm([reply("Noted.")])) as engine:
            conversation = await engine.create()
            await conversation.send("my secret is xyzzy-4711")
            await engine.delete(conversation.id)

            assert await engine.list() == ()
            with pytest.raises(UnknownConversation):
                await engine.get(conversation.id)
        left = b"".join(path.read_bytes() for path in database.parent.iterdir())
        assert b"xyzzy-4711" not in left

    async def test_conversations_are_listed_newest_first(self, database: Path) -> None:
        """Summaries have an id, a state and when they moved last."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            first, second = await engine.create(), await engine.create()
            await first.send("Hi")
            listed = await engine.list()

        assert [summary.id for summary in listed] == [first.id, second.id]
        assert listed[0].updated_at > listed[1].updated_at

    async def test_conversations_run_side_by_side(self, database: Path) -> None:
        """One conversation handles one event at a time; conversations run concurrently."""

        async def answer(request: Any) -> str:
            await asyncio.sleep(0)
            return f"You said {request.messages[-1]['content']}"

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            many = [await engine.create() for _ in range(20)]
            turns = await asyncio.gather(*(c.send(f"I am {n}") for n, c in enumerate(many)))

        assert [turn.reply for turn in turns] == [f"You said I am {n}" for n in range(20)]

    async def test_a_stored_conversation_replays_without_divergence(self, database: Path) -> None:
        """What happened lies in SQLite and folds again to the same steps."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), failure("authentication"), reply("Ok.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            await conversation.answer({"When?": "6:30 PM"})
            await conversation.retry()
            report = await conversation.replay()

        assert (report.events, report.divergence) == (8, None)

    async def test_other_models_are_adopted_at_rest(self, database: Path) -> None:
        """A later open brings other models: the conversation takes them up before its next turn, in the log."""
        async with Engine.open(database, model=ScriptedLlm([reply("One.")], name="first")) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")

        async with Engine.open(database, model=ScriptedLlm([reply("Two.")], name="second")) as engine:
            again = await engine.get(conversation.id)
            turn = await again.send("Hi again")
            types = [entry.event.type for entry in await again.events()]
            divergence = (await again.replay()).divergence

        assert turn.reply == "Two."
        assert types[3:5] == ["policy_changed", "user_message"]
        assert divergence is None

    async def test_rules_change_between_turns(self, database: Path) -> None:
        """`set_policy` holds from the next turn on, and is refused while busy."""
        async with Engine.open(database, model=ScriptedLlm([reply("x", finish_reason="length"), reply("")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi")
            changed = presets.assistant().model_copy(
                update={"texts": presets.assistant().texts.model_copy(update={"empty": "Nothing comes to mind."})}
            )
            await conversation.set_policy(changed)
            second = await conversation.send("Hi")

        assert first.truncated
        assert (second.status, second.reply) == ("incomplete", "Nothing comes to mind.")


class TestWhenTheDiskFails:
    """P28: memory equals store, the caller gets a typed error, and the conversation goes on afterwards."""

    async def test_a_request_that_cannot_be_stored_is_refused(self, database: Path) -> None:
        """P28: Refused("storage"); state as before; sent again it works."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            before = conversation.state
            async with full_disk(engine):
                with pytest.raises(Refused) as refused:
                    await conversation.send("Hi", message_id="m1")
                assert conversation.state == before
            turn = await conversation.send("Hi", message_id="m1")

            assert refused.value.code == "storage"
            assert turn.reply == "Hello."
            assert (await conversation.replay()).divergence is None

    async def test_an_answer_that_cannot_be_stored_is_kept_and_tried_again(self, database: Path) -> None:
        """P28: the answer stays at the head of its mailbox; requests behind it are refused meanwhile."""
        gate = Gate()
        llm = FunctionLlm(answers_after(gate, "Kept."))

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            async with full_disk(engine):
                gate.opened.set()
                await until(lambda: conversation._loop._mailbox._stuck)
                with pytest.raises(Refused) as refused:
                    await conversation.cancel()
                assert conversation.state.type == "llm_requesting"

            assert refused.value.code == "storage"
            assert (await turn).reply == "Kept."
            assert len(llm.requests) == 1
            assert (await conversation.replay()).divergence is None


class TestConfiguration:
    def test_a_tool_without_types_is_refused_at_once(self, database: Path) -> None:
        """Bad input: a tool function without types, in one sentence that names it."""

        def guess(what):  # type: ignore[no-untyped-def]
            return what

        with pytest.raises(ConfigurationError) as refused:
            Engine.open(database, model=ScriptedLlm([]), tools=[guess])

        assert "guess" in refused.value.sentence
        assert "what" in refused.value.sentence

    async def test_an_unknown_model_is_found_before_anybody_is_asked(self, database: Path) -> None:
        """Bad input: a model that litellm does not know."""
        async with Engine.open(database, model="no-such-provider/no-such-model") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "no-such-provider/no-such-model" in refused.value.sentence

    async def test_a_provider_without_a_key_is_found_before_it_is_asked(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bad input: no key for a real provider."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        async with Engine.open(database, model="openai/gpt-4.1-mini") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "OPENAI_API_KEY" in refused.value.sentence

    async def test_events_of_a_hosts_own_making(self, database: Path) -> None:
        """`dispatch` hands over any event and returns its step."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "never"))) as engine:
            conversation = await engine.create()
            at = engine.now()
            step = await conversation.dispatch(UserMessage(event_id="a", at=at, text="Hi"))
            stopped = await conversation.dispatch(UserCancel(event_id="b", at=at))

        assert step.state.type == "llm_requesting"
        assert stopped.state.type == "idle"


class TestWithoutAnEventLoop:
    def test_the_blocking_engine_is_the_same(self, database: Path) -> None:
        """`open_blocking`: the same calls, without await."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])

        with Engine.open_blocking(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = engine.create(system="You book tables.")
            asked = conversation.send("A table")
            seen = next(iter(conversation.updates()))
            turn = conversation.answer({asked.questions[0].question: "6:30 PM"})

            assert asked.status == "awaiting_user"
            assert seen.type == "snapshot"
            assert turn.reply == "Booked."
            assert conversation.state.type == "idle"
            assert [summary.id for summary in engine.list()] == [conversation.id]


def test_a_state_is_typed() -> None:
    """A host may ask where a conversation rests by type, not by text."""
    assert ToolExecuting.model_fields["type"].default == "tool_executing"
