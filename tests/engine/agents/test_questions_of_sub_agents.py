"""What sub-agents ask: it is refused, or put to the user of the agent that started them. P20."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, Questions, Refused, SubAgentRules, presets
from turnwise.testing import ManualClock, call

from ...support.clocks import clock_of
from ...support.databases import BOTH_STORES, Database, stores
from ...support.engine_scenarios import Gate
from ...support.families import GO, FamilyLlm, finished, outcomes_in, results_in, spawn

pytestmark = BOTH_STORES

TOOLS = ["spawn_agents", "ask_user_question"]
ASKING = presets.assistant().replace(sub_agents=SubAgentRules(questions="ask_user"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "agents.db"


def question(text: str) -> dict[str, Any]:
    """Return a question with two options."""
    return {"question": text, "options": [{"label": "Yes"}, {"label": "No"}]}


def ask(text: str) -> Any:
    """Return an answer of a model that asks this."""
    return call("ask_user_question", questions=[question(text)])


async def children_at_rest(conversation: Conversation) -> list[str]:
    """Return the states of the sub-agents."""
    return [child.state for child in await conversation.children()]


class TestRefusedQuestions:
    """P20: a sub-agent has nobody to ask, unless the policy says otherwise."""

    async def test_it_is_not_offered_the_tool_and_a_forged_call_is_an_error(self, database: Database) -> None:
        """The sub-agent reads why, and goes on; its parent is offered both tools."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            turn = await conversation.send(GO)

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", "result")]
            assert offered(llm.asked_by("a")[0]) == []
            assert "ask_user_question is not available to sub-agents" in results_in(llm.asked_by("a")[1])[0]
            assert sorted(offered(llm.asked_by(GO)[0])) == sorted(TOOLS)

    async def test_sub_agents_start_no_others_beyond_the_depth(self, database: Database) -> None:
        """By default a sub-agent has none of its own: it is not offered the tool, and a forged call starts nobody."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [spawn("b"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=presets.assistant())
            await conversation.send(GO)

            assert "spawn_agents is not available to sub-agents" in results_in(llm.asked_by("a")[1])[0]
            assert [child.parent for child in await engine.list(role="sub_agent")] == [conversation.id]


class TestQuestionsForTheUser:
    """With `questions="ask_user"` the user of the parent is asked, and the answer reaches the sub-agent once."""

    async def test_the_answer_reaches_the_sub_agent(self, database: Database) -> None:
        """The turn of the parent waits for the user like any other that asks."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASKING)
            asked = await conversation.send(GO)

            assert asked.status == "awaiting_user"
            assert [one.question for one in asked.questions] == ["May I?"]
            assert conversation.state.type == "awaiting_sub_agents"
            updates = conversation.updates()
            shown = (await anext(updates)).state
            await updates.aclose()
            assert (shown.type, shown.questions, shown.call_id) == (
                "awaiting_sub_agents",
                asked.questions,
                asked.call_id,
            )
            turn = await conversation.answer({"May I?": "Yes"})
            assert turn.reply == "Done."
            assert '"May I?": "Yes"' in results_in(llm.asked_by("a")[1])[0]
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", "result")]
            assert (await conversation.replay()).divergence is None

    async def test_two_that_ask_are_answered_one_after_the_other(self, database: Database) -> None:
        """Each answer reaches the one that asked, though their calls have the same id."""
        scripts = {name: [ask(f"May {name}?"), f"result of {name}"] for name in ("a", "b")}
        llm = FamilyLlm({GO: [spawn("a", "b"), "Done."], **scripts})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASKING)
            turn = await conversation.send(GO)
            answered = []
            while turn.status == "awaiting_user":
                (text,) = (one.question for one in turn.questions)
                answered.append(text)
                turn = await conversation.answer({text: f"Yes, {text}"}, call_id=turn.call_id)

            assert turn.reply == "Done."
            assert sorted(answered) == ["May a?", "May b?"]
            for name in ("a", "b"):
                assert f"Yes, May {name}?" in results_in(llm.asked_by(name)[1])[0]

    async def test_a_question_that_is_declined(self, database: Database) -> None:
        """The sub-agent uses its own judgment if the policy lets a model go on; the turn goes on with it."""
        policy = ASKING.replace(questions=Questions(cancel="resume"))
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(GO)
            turn = await conversation.decline()

            assert turn.reply == "Done."
            assert "declined" in results_in(llm.asked_by("a")[1])[0]

    async def test_a_question_that_is_cancelled(self, database: Database) -> None:
        """Otherwise the turn ends, and its sub-agents with it."""
        llm = FamilyLlm({GO: [spawn("a")], "a": [ask("May I?")]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASKING)
            await conversation.send(GO)
            turn = await conversation.decline()

            assert turn.status == "cancelled"
            assert await children_at_rest(conversation) == ["closed"]

    async def test_an_answer_to_something_else_is_refused(self, database: Database) -> None:
        """The question stays open: of another call, of the sub-agent's own id, or with an unknown option."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASKING)
            turn = await conversation.send(GO)
            for answers, call_id, code in (
                ({"May I?": "Yes"}, "call_1_0", "wrong_state"),
                ({"May you?": "Yes"}, turn.call_id, "unknown_question"),
                ({}, turn.call_id, "missing_answer"),
            ):
                with pytest.raises(Refused) as refused:
                    await conversation.answer(answers, call_id=call_id)
                assert refused.value.code == code

            assert (await conversation.answer({"May I?": "No"})).reply == "Done."

    async def test_a_question_outlives_a_restart(self, database: Database) -> None:
        """The next process shows it, once, and passes the answer on."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASKING)
            await conversation.send(GO)
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.get(conversation.id)
            asked = await conversation.wait()
            turn = await conversation.answer({"May I?": "Yes"})

            assert asked.status == "awaiting_user"
            assert turn.reply == "Done."
            reports = [entry.event.type for entry in await conversation.events()].count("sub_agent_asked")
            assert reports <= 2  # that it asks, and perhaps that it no longer does
            assert len(llm.asked_by("a")) == 2

    async def test_a_question_whose_time_is_over(self, database: Database) -> None:
        """The sub-agent goes on, and the parent shows the question no longer."""
        clock, gate = ManualClock(), Gate()

        async def slowly() -> str:
            await gate()
            return "result"

        policy = ASKING.replace(questions=Questions(deadline=60.0))
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), slowly]})
        async with Engine.open(database, model=llm, tools=TOOLS, clock=clock) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(GO)
            await clock.until_asleep(2)
            await clock.advance(60)
            await gate.arrived.wait()
            async with asyncio.timeout(10):
                while getattr(conversation.state, "open_question", None) is not None:
                    await asyncio.sleep(0.001)
            with pytest.raises(Refused):
                await conversation.answer({"May I?": "Yes"})
            gate.opened.set()
            turn = await conversation.wait()

            assert turn.reply == "Done."
            assert len(await finished(conversation)) == 1

    async def test_it_is_answered_in_another_engine(self, database: Database) -> None:
        """The engine that waits for the sub-agent finds in the store that it has its answer, and that it has ended."""
        clock = clock_of(database)
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": [ask("May I?"), "result"]})
        async with (
            stores(database, 2) as (its_store, other_store),
            Engine.open(store=its_store, model=llm, tools=TOOLS, clock=clock) as engine,
            Engine.open(store=other_store, model=llm, tools=TOOLS) as other,
        ):
            conversation = await engine.create(policy=ASKING)
            await conversation.send(GO)
            answering = asyncio.ensure_future((await other.get(conversation.id)).answer({"May I?": "Yes"}))
            async with asyncio.timeout(60):
                while await children_at_rest(conversation) != ["closed"]:
                    await asyncio.sleep(0.001)
                while not await finished(conversation):
                    await clock.advance(5)
                    await asyncio.sleep(0.001)
            assert (await answering).reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", "result")]


def offered(request: Any) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [tool["function"]["name"] for tool in request.tools]
