"""Questions that pause the machine, over the whole engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Conversation,
    Engine,
    Policy,
    Question,
    Questions,
    Refused,
    Turn,
    UserQuestion,
    WaitsForAnswer,
    tool,
)
from turnwise.states import pending
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, reply

from ..support.engine_scenarios import QUESTION, Gate, answers_after, results, until


class TestQuestions:
    """A question, its answers, and those who do not answer."""

    @pytest.fixture
    async def asked(self, database: Path) -> AsyncIterator[tuple[Engine, Conversation, Turn]]:
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

    async def test_a_late_answer_does_not_hit_the_next_question(self, database: Path) -> None:
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

    async def test_by_policy_the_model_goes_on_after_a_cancel(self, database: Path) -> None:
        """P17: with `resume` the model goes on, and reads that the user declined."""
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

    async def test_what_a_slow_watcher_was_shown_is_what_its_click_means(self, database: Path) -> None:
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

    async def test_any_text_is_the_answer(self, database: Path) -> None:
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
async def test_declining_stops_nothing_else(database: Path, call_id: str | None) -> None:
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
