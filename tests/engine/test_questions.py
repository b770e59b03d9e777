"""Questions that pause the machine, and calls that ask their user in the middle, over the whole engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.effect_ids import unmarked
from turnwise import (
    Conversation,
    Engine,
    Policy,
    Question,
    QuestionOption,
    Questions,
    Refused,
    Tool,
    ToolContext,
    ToolError,
    Turn,
    UserQuestion,
    WaitsForAnswer,
    tool,
)
from turnwise.states import AskUserQuestionPending, ExecuteTool, ResumeTool, Texts, ToolInterrupted, pending
from turnwise.testing import ManualClock
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, reply

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, answers_after, results, until

pytestmark = BOTH_STORES

# --- Questions that pause the machine, over the whole engine.


class TestQuestions:
    """A question, its answers, and those who do not answer."""

    @pytest.fixture
    async def asked(self, database: Database) -> AsyncIterator[tuple[Engine, Conversation, Turn]]:
        """Return a conversation in which "When?" was asked."""
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
        """P12: the question is in the state and in the turn; nothing is in flight."""
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
        """P14: an unknown question or a missing answer is refused by name, and the question stays open."""
        _, conversation, _ = asked

        with pytest.raises(Refused) as refused:
            await conversation.answer(answers)

        assert refused.value.code == code
        assert refused.value.subject in ("When?", "Where?")
        assert conversation.state.type == "awaiting_user_response"

    async def test_of_two_racing_answers_one_is_taken(self, asked: tuple[Engine, Conversation, Turn]) -> None:
        """P18: exactly one of two concurrent answers is accepted; the other is refused."""
        engine, conversation, _ = asked
        other = await engine.get(conversation.id)

        outcomes = await asyncio.gather(
            conversation.answer({"When?": "6:30 PM"}), other.answer({"When?": "8:15 PM"}), return_exceptions=True
        )

        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert [error.code for error in refused] == ["wrong_state"]
        assert len(results(await conversation.transcript())) == 1

    async def test_a_late_answer_does_not_hit_the_next_question(self, database: Database) -> None:
        """P40: an answer is meant for the question that its handle has seen, even if the next one has the same text."""
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
        """P17: a cancel while a question is open leads to Idle, and the call has a result."""
        _, conversation, _ = asked

        cancelled = await conversation.cancel()

        assert not cancelled.no_op
        assert conversation.state.type == "idle"
        assert results(await conversation.transcript()) == ["User cancelled the question"]

    async def test_by_policy_the_model_goes_on_after_a_cancel(self, database: Database) -> None:
        """P17: with `resume` the model goes on, and reads that the user declined."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Then 7 PM.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create(policy=Policy(questions=Questions(cancel="resume")))
            await conversation.send("A table")
            turn = await conversation.decline()

        assert turn.reply == "Then 7 PM."
        assert "declined" in llm.requests[1].messages[-1]["content"]

    async def test_there_is_nothing_to_decline_at_rest(self, database: Database) -> None:
        """`decline` answers a question; where none is open it is refused."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            with pytest.raises(Refused) as refused:
                await (await engine.create()).decline()

        assert refused.value.code == "wrong_state"

    async def test_a_question_survives_its_process(self, database: Database) -> None:
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

    async def test_a_deadline_survives_its_process(self, database: Database) -> None:
        """Its deadline is absolute, and its timer starts again when the database is opened."""
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

    async def test_what_a_slow_watcher_was_shown_is_what_its_click_means(self, database: Database) -> None:
        """P40: a page that still shows the first question cannot answer the second one."""
        asking = call("ask_user_question", questions=[QUESTION])
        llm = ScriptedLlm([asking, asking, reply("Booked.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            page = await engine.create()
            other = await engine.get(page.id)
            shown = page.updates()
            await anext(shown)
            await other.send("A table")
            await other.answer({"When?": "6:30 PM"})
            async for update in shown:
                if update.data.get("type") == "awaiting_user_response":
                    break

            with pytest.raises(Refused) as refused:
                await page.answer({"When?": "8:15 PM"})

        assert refused.value.code == "wrong_state"


class TestOpenQuestions:
    """A tool of the application asks without offering options."""

    async def test_any_text_is_the_answer(self, database: Database) -> None:
        """It pauses the machine, survives a restart, and refuses what is no text; then the tool's call has its
        result."""

        @tool(exclusive=True, acts=["question"], crash="pure")
        def ask_name() -> Question:
            """Ask for the name of the user."""
            return Question((UserQuestion(question="What is your name?"),))

        async with Engine.open(database, model=ScriptedLlm([call("ask_name")]), tools=[ask_name]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Book for me")
            assert isinstance(turn, WaitsForAnswer)
            assert [question.options for question in turn.questions] == [()]

        async with Engine.open(database, model=ScriptedLlm(["Hello Ann."]), tools=[ask_name]) as engine:
            again = await engine.get(conversation.id)
            for wrong in ("", ["Ann"]):
                with pytest.raises(Refused):
                    await again.answer({"What is your name?": wrong})
            turn = await again.answer({"What is your name?": "Ann"})

            assert turn.reply == "Hello Ann."
            assert results(await again.transcript()) == ['{"answers": {"What is your name?": "Ann"}}']
            assert (await again.replay()).divergence is None


@pytest.mark.parametrize("call_id", [None, "call_1_0"])
async def test_declining_stops_nothing_else(database: Database, call_id: str | None) -> None:
    """A compaction before the first turn goes on: it is no question, and no turn either."""
    gate = Gate()
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello to you."}]

    async with Engine.open(database, model=FunctionLlm(answers_after(gate, "They met."))) as engine:
        conversation = await engine.create(messages=history)
        compacting = asyncio.create_task(conversation.compact())
        await gate.arrived.wait()
        with pytest.raises(Refused) as refused:
            await conversation.decline(call_id)
        gate.opened.set()
        await compacting

        assert refused.value.code == "wrong_state"
        assert [entry.event.type for entry in await conversation.events()][-1] == "history_compacted"


# --- A call asks its user in the middle and then goes on, whatever happens meanwhile.


SURE = UserQuestion(question="Delete all?", options=(QuestionOption(label="Yes"), QuestionOption(label="No")))
WHY = UserQuestion(question="Why?")
TEXTS = Texts()


class Deletion:
    """A tool that asks before it deletes. It remembers what it did, and under which keys it ran."""

    def __init__(self, *questions: UserQuestion, **declared: Any) -> None:
        self.keys: list[str] = []
        self.learned: list[str] = []
        self.ended: list[str] = []
        asked = questions or (SURE,)

        @tool(**{"exclusive": True, **declared})
        async def delete(context: ToolContext) -> str:
            """Delete everything."""
            self.keys.append(context.key)
            try:
                for question in asked:
                    context.progress(f"asks {question.question}")
                    answers = await context.ask([question])
                    self.learned.append(str(answers.answers.get(question.question, answers.action)))
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("returned")
            return f"Learned {', '.join(self.learned)}."

        self.tool = delete


def opened(database: Database, deletion: Deletion | Tool[..., Any], *more: Any, **options: Any) -> Any:
    """An engine whose model calls the tool, and then says what it has."""
    tool_ = deletion.tool if isinstance(deletion, Deletion) else deletion
    return Engine.open(database, model=ScriptedLlm([call(tool_.name), reply("Done."), *more]), tools=[tool_], **options)


class TestAnswers:
    """What a person does reaches the call, and the call goes on."""

    async def test_the_call_goes_on_with_the_answer(self, database: Database) -> None:
        """The turn rests for the person; the answer is what `ask` returns, and the result is the tool's own."""
        deletion = Deletion()
        async with opened(database, deletion) as engine:
            conversation = await engine.create()

            asked = await conversation.send("Delete it.")
            turn = await conversation.answer({"Delete all?": "Yes"})

            assert (asked.status, asked.questions) == ("awaiting_user", (SURE,))
            assert (turn.status, turn.reply) == ("completed", "Done.")
            assert results(await conversation.transcript()) == ["Learned Yes."]
            assert (await conversation.replay()).divergence is None
        assert deletion.ended == ["returned"]

    async def test_a_call_may_ask_several_times(self, database: Database) -> None:
        """Each question rests the conversation anew; the second is asked only after the first was answered."""
        deletion = Deletion(SURE, WHY, SURE)
        async with opened(database, deletion) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            second = await conversation.answer({"Delete all?": "Yes"})
            third = await conversation.answer({"Why?": "日本語 {x}"})
            turn = await conversation.answer({"Delete all?": "No"})

            assert [second.questions, third.questions] == [(WHY,), (SURE,)]
            assert turn.status == "completed"
        assert deletion.learned == ["Yes", "日本語 {x}", "No"]
        assert len(deletion.keys) == 1

    async def test_questions_asked_at_once_are_asked_one_after_the_other(self, database: Database) -> None:
        """A call that asks twice at once gets each answer where it belongs."""

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> str:
            """Delete everything."""
            both = await asyncio.gather(context.ask([SURE]), context.ask([WHY]))
            return " ".join(str(one.answers) for one in both)

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await conversation.answer({"Delete all?": "Yes"})
            await conversation.answer({"Why?": "Old."})

            assert results(await conversation.transcript()) == ["{'Delete all?': 'Yes'} {'Why?': 'Old.'}"]

    async def test_a_plain_function_may_ask_from_its_thread(self, database: Database) -> None:
        """`ask_blocking` blocks the thread of the function, and nothing else."""

        @tool(exclusive=True)
        def delete(context: ToolContext) -> str:
            """Delete everything."""
            return str(context.ask_blocking([{"question": "Why?"}]).answers["Why?"])

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await conversation.answer({"Why?": "Old."})

            assert results(await conversation.transcript()) == ["Old."]

    async def test_several_choices_and_notes_reach_the_call(self, database: Database) -> None:
        """An answer with several choices is a list, and what the person noted is beside it."""
        seen: list[Any] = []
        which = UserQuestion(question="Which?", options=SURE.options, multi_select=True)

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            seen.append(await context.ask([which]))

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")
            with pytest.raises(Refused, match="Which"):
                await conversation.answer({})

            await conversation.answer({"Which?": ["Yes", "No"]}, {"Which?": {"notes": "both"}})

        assert seen[0].answers == {"Which?": ["Yes", "No"]}
        assert seen[0].annotations["Which?"].notes == "both"

    async def test_a_question_with_a_secret_is_answered_under_its_own_text(self, database: Database) -> None:
        """J1: the person and the log see the question without the secret; the call gets the answer by its own text, and
        what the person answered without its secrets."""
        pytest.importorskip("phonenumbers")
        asked: list[Any] = []

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            asked.append(await context.ask([{"question": "Mail it to ada@example.com?"}]))

        async with opened(database, delete) as engine:
            conversation = await engine.create(policy=Policy(redact=True))
            turn = await conversation.send("Delete it.")
            assert isinstance(turn, WaitsForAnswer)
            (shown,) = turn.questions

            await conversation.answer({shown.question: "No, to bob@example.com"})

        assert "ada@" not in shown.question
        assert list(asked[0].answers) == ["Mail it to ada@example.com?"]
        assert "bob@" not in str(asked[0].answers)


class TestWithoutAnAnswer:
    """A person declines, cancels, closes, or does nothing."""

    async def test_a_declined_question_is_passed_on(self, database: Database) -> None:
        """With `cancel="resume"` the call learns that the person declined, and decides itself."""
        deletion = Deletion()
        async with opened(database, deletion) as engine:
            conversation = await engine.create(policy=Policy(questions=Questions(cancel="resume")))
            await conversation.send("Delete it.")

            turn = await conversation.decline()

            assert turn is not None and turn.status == "completed"
        assert deletion.learned == ["declined"]

    async def test_a_cancelled_question_stops_the_call_and_the_turn(self, database: Database) -> None:
        """By default the call is cancelled; its result says so, and the conversation goes on."""
        deletion = Deletion()
        async with opened(database, deletion, reply("Well.")) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await conversation.cancel()
            turn = await conversation.wait()

            assert turn is not None and turn.status == "cancelled"
            assert results(await conversation.transcript()) == [TEXTS.cancelled]
        assert deletion.ended == ["cancelled"]

    async def test_a_deadline_that_passes_is_passed_on(self, database: Database) -> None:
        """The policy's deadline ends the question, and the call learns that nobody answered. The time of the wait does
        not count for the tool."""
        clock = ManualClock()
        deletion = Deletion(timeout=5.0)
        async with opened(database, deletion, clock=clock) as engine:
            conversation = await engine.create(policy=Policy(questions=Questions(deadline=3_600.0)))
            await conversation.send("Delete it.")

            await clock.advance(3_600)
            await until(lambda: conversation.state.type == "idle")
        assert deletion.learned == ["unanswered"]

    @pytest.mark.parametrize(
        "end",
        [
            lambda engine, conversation: conversation.close(),
            lambda engine, conversation: engine.delete(conversation.id),
            lambda engine, conversation: engine.close(),
        ],
        ids=["closed", "deleted", "engine closed"],
    )
    async def test_nothing_runs_on_when_the_conversation_ends(
        self, database: Database, end: Callable[[Engine, Conversation], Coroutine[Any, Any, None]]
    ) -> None:
        """A conversation that is closed or deleted, and an engine that closes, stop the call that waits."""
        deletion = Deletion()
        async with opened(database, deletion) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await end(engine, conversation)
            await until(lambda: bool(deletion.ended))

        assert deletion.ended == ["cancelled"]

    async def test_a_thread_that_waits_is_released(self, database: Database) -> None:
        """The thread of a plain function ends when its turn is cancelled."""
        ended = threading.Event()

        @tool(exclusive=True)
        def delete(context: ToolContext) -> None:
            """Delete everything."""
            try:
                context.ask_blocking([SURE])
            finally:
                ended.set()

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await conversation.cancel()
            await until(ended.is_set)


class TestTime:
    """The timeout of the tool."""

    async def test_it_does_not_run_while_a_person_is_asked(self, database: Database) -> None:
        """A tool whose time is short waits for a person for longer than that."""
        deletion = Deletion(timeout=0.2)
        async with opened(database, deletion) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")
            await asyncio.sleep(0.25)

            await conversation.answer({"Delete all?": "Yes"})

            assert results(await conversation.transcript()) == ["Learned Yes."]

    async def test_it_runs_again_after_the_answer(self, database: Database) -> None:
        """A call that hangs after its answer fails as any call does."""

        @tool(exclusive=True, timeout=0.05)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            await context.ask([SURE])
            await asyncio.Event().wait()

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            await conversation.answer({"Delete all?": "Yes"})

            assert results(await conversation.transcript()) == ["delete did not finish within 0.05 s."]

    async def test_a_call_that_ends_by_itself_keeps_its_result(self, database: Database) -> None:
        """The question stays open; once it is settled, the result comes."""
        ended = asyncio.Event()

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> str:
            """Delete everything."""
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await context.ask([SURE])
            ended.set()
            return "Nobody was quick enough."

        async with opened(database, delete) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")
            await ended.wait()

            turn = await conversation.answer({"Delete all?": "Yes"})

            assert turn.status == "completed"
            assert results(await conversation.transcript()) == ["Nobody was quick enough."]


class TestWhoMayAsk:
    """Only an exclusive tool may ask while it runs."""

    async def test_another_tool_reads_why_it_may_not(self, database: Database) -> None:
        """A tool that is not exclusive gets an error, which the model reads."""
        deletion = Deletion(exclusive=False)
        async with opened(database, deletion) as engine:
            conversation = await engine.create()

            await conversation.send("Delete it.")

            (result,) = results(await conversation.transcript())
            assert result == "delete may not ask the user while it runs: it must be declared with exclusive=True."

    async def test_questions_that_break_the_rules_are_an_error_of_the_tool(self, database: Database) -> None:
        """The model reads what is wrong with the question, and nobody is asked."""

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            await context.ask([])

        async with opened(database, delete) as engine:
            conversation = await engine.create()

            turn = await conversation.send("Delete it.")

            assert turn.status == "completed"
            (result,) = results(await conversation.transcript())
            assert result.startswith("delete failed: ")

    async def test_a_text_is_no_list_of_questions(self, database: Database) -> None:
        """It is refused as one fault, not as one for each of its characters."""
        refused: list[ValidationError] = []

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            with pytest.raises(ValidationError) as error:
                await context.ask("x" * 20_000)  # type: ignore[arg-type]
            refused.append(error.value)

        async with opened(database, delete) as engine:
            conversation = await engine.create()

            turn = await conversation.send("Delete it.")

        assert turn.status == "completed"
        assert [error.error_count() for error in refused] == [1]

    async def test_nobody_asks_for_a_call_that_is_over(self, database: Database) -> None:
        """Whoever kept the context reads why, and is not cancelled."""
        kept: list[ToolContext] = []

        @tool(exclusive=True)
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            kept.append(context)

        async with opened(database, delete) as engine:
            await (await engine.create()).send("Delete it.")

            with pytest.raises(ToolError, match="The call is over, so it cannot ask any more"):
                await kept[0].ask([SURE])

    async def test_a_coroutine_may_not_block_the_event_loop(self, database: Database) -> None:
        """`ask_blocking` in a coroutine would stop everything, so it fails at once."""

        @tool(exclusive=True, errors="message")
        async def delete(context: ToolContext) -> None:
            """Delete everything."""
            context.ask_blocking([SURE])

        async with opened(database, delete) as engine:
            conversation = await engine.create()

            await conversation.send("Delete it.")

            (result,) = results(await conversation.transcript())
            assert "await ask instead" in result


async def asks(conversation: Conversation, deletion: Deletion | None = None, runs: int = 1) -> None:
    """Wait until the conversation waits for an answer, and the call has been begun so many times."""
    await until(
        lambda: (deletion is None or len(deletion.keys) >= runs) and conversation.state.type == "awaiting_user_response"
    )


async def dies_while_waiting(database: Database, deletion: Deletion, **rules: Any) -> str:
    """The id of a conversation whose process ended while the call waited for the person."""
    async with opened(database, deletion) as engine:
        conversation = await engine.create(policy=Policy(**rules))
        await conversation.send("Delete it.")
        return str(conversation.id)


class TestCrashes:
    """The process dies while the call waits: the crash contract decides."""

    @pytest.mark.parametrize("contract", ["pure", "idempotent"])
    async def test_a_call_that_may_run_twice_asks_again(self, database: Database, contract: str) -> None:
        """It runs again under the same idempotency key, and its user is asked again."""
        deletion = Deletion(crash=contract)
        conversation_id = await dies_while_waiting(database, deletion)

        async with Engine.open(database, model=ScriptedLlm([reply("Done.")]), tools=[deletion.tool]) as engine:
            conversation = await engine.get(conversation_id)
            await asks(conversation, deletion, 2)
            turn = await conversation.answer({"Delete all?": "Yes"})

            assert turn.status == "completed"
            assert (await conversation.replay()).divergence is None
            assert conversation.state.book.turn == 1
        assert [*map(unmarked, deletion.keys)] == [f"{conversation_id}/2"] * 2
        assert len({*deletion.keys}) == 1
        assert deletion.ended == ["cancelled", "returned"]

    async def test_a_call_that_must_not_run_twice_is_in_doubt(self, database: Database) -> None:
        """A person decides; a call that is to run again has a key of its own."""
        deletion = Deletion()
        conversation_id = await dies_while_waiting(database, deletion)

        async with Engine.open(database, model=ScriptedLlm([reply("Done.")]), tools=[deletion.tool]) as engine:
            conversation = await engine.get(conversation_id)
            await until(lambda: conversation.state.type == "in_doubt")
            (call_id,) = conversation.state.round.doubtful  # type: ignore[union-attr]
            await conversation.resolve(call_id, "again")
            await asks(conversation)
            turn = await conversation.answer({"Delete all?": "No"})

            assert turn.status == "completed"
        assert len(set(deletion.keys)) == 2

    async def test_waits_are_never_counted_as_resumes(self, database: Database) -> None:
        """However often the process dies while a person is asked, the turn does not fail."""
        deletion = Deletion(crash="pure")
        conversation_id = await dies_while_waiting(database, deletion)
        for runs in (2, 3, 4):
            async with Engine.open(database, model=ScriptedLlm([]), tools=[deletion.tool]) as engine:
                conversation = await engine.get(conversation_id)
                await asks(conversation, deletion, runs)

        async with Engine.open(database, model=ScriptedLlm([reply("Done.")]), tools=[deletion.tool]) as engine:
            conversation = await engine.get(conversation_id)
            await asks(conversation, deletion, 5)
            turn = await conversation.answer({"Delete all?": "Yes"})

        assert turn.status == "completed"
        assert {*map(unmarked, deletion.keys)} == {f"{conversation_id}/2"}
        assert len({*deletion.keys}) == 1

    async def test_the_deadline_ends_with_the_question(self, database: Database) -> None:
        """The interrupted question's timer is gone; the one of the repeated question counts."""
        deletion = Deletion(crash="pure")
        conversation_id = await dies_while_waiting(database, deletion, questions=Questions(deadline=3_600.0))

        async with Engine.open(database, model=ScriptedLlm([reply("Done.")]), tools=[deletion.tool]) as engine:
            conversation = await engine.get(conversation_id)
            await asks(conversation, deletion, 2)
            events = [entry.event for entry in [*(await conversation.events())]]

            assert sum(isinstance(event, ToolInterrupted) for event in events) == 1
            assert sum(isinstance(event, AskUserQuestionPending) for event in events) == 2
            assert (await conversation.answer({"Delete all?": "Yes"})).status == "completed"


class TestOtherPerformers:
    """An application's own performers."""

    async def test_a_call_that_does_not_wait_here_is_left_to_its_contract(self, database: Database) -> None:
        """A performer of the application asked and nobody holds the call: it must not run twice, so it is in doubt."""
        deletion = Deletion()

        async def asks(effect: Any, context: Any) -> AskUserQuestionPending:
            return AskUserQuestionPending(
                effect_id=effect.effect_id, at=ManualClock().now(), questions=(SURE,), suspends=True
            )

        async with opened(database, deletion, performers={ExecuteTool: asks}) as engine:
            conversation = await engine.create()
            await conversation.send("Delete it.")

            turn: Turn = await conversation.answer({"Delete all?": "Yes"})

            assert turn.status == "in_doubt"
            effects = [effect for entry in await conversation.events() for effect in entry.effects]
            assert [one.reply for one in effects if isinstance(one, ResumeTool)] == ["answered"]
