"""Sub-agents whose process is killed: each is started once, and each outcome reaches the model once. P24."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import Conversation, Engine, SubAgentRules, presets
from turnwise.states import UserMessage
from turnwise.testing import FunctionLlm, call, calls, crash_at_every_boundary, reply
from turnwise.testing.crashes import Process, Seen, check_after_crashes

from ...support.engine_scenarios import QUESTION
from ...support.families import GO, finished, first_text, outcomes_in, spawn, spawned
from ...support.fault_profile import LONG

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(0 if LONG else 240)]

SAID = {
    GO: [calls(spawn("asks", "answers"), spawn("answers too")), reply("Done.")],
    "asks": [call("ask_user_question", questions=[QUESTION]), reply("I asked.")],
    "answers": [reply("I know.")],
    "answers too": [reply("So do I.")],
}
"""What each agent says, by the first thing that was said to it and the number of its answers before."""

OUTCOMES = [[("completed", "I asked."), ("completed", "I know.")], [("completed", "So do I.")]]


def answer(request: Any) -> Any:
    """Return the answer that follows from the request, so that an agent goes on after a crash."""
    return SAID[first_text(request)][sum(message["role"] == "assistant" for message in request.messages)]


async def a_family(database: Path) -> None:
    """Two calls start three sub-agents, one of which asks the user of their parent."""
    tools = ["spawn_agents", "ask_user_question"]
    async with Engine.open(database, model=FunctionLlm(answer), tools=tools) as engine:
        known = await engine.list(role="foreground")
        policy = presets.assistant().replace(sub_agents=SubAgentRules(questions="ask_user"))
        conversation = await engine.get(known[0].id) if known else await engine.create(policy=policy)
        turn = await conversation.send(GO, message_id="m1")
        while turn.status == "awaiting_user":
            answers = {question.question: "8:15 PM" for question in turn.questions}
            turn = await conversation.answer(answers, call_id=turn.call_id)
        assert turn.status == "completed", turn
        await check_that_each_counted_once(engine, conversation)


async def check_that_each_counted_once(engine: Engine, conversation: Conversation) -> None:
    """Check the logs: every sub-agent that was asked for exists once, took its task once, ended, and was read once."""
    effects = await spawned(conversation)
    assert len(effects) == 3, effects
    assert sorted(await finished(conversation)) == effects
    children = await conversation.children()
    assert [unmarked(child.id) for child in children] == [f"{conversation.id}/{effect_id}" for effect_id in effects]
    assert {child.state for child in children} == {"closed"}
    for child in children:
        events = [entry.event for entry in await (await engine.get(child.id)).events()]
        assert sum(isinstance(event, UserMessage) for event in events) == 1
    results = [message.text for message in await conversation.transcript() if message.role == "tool"]
    assert [outcomes_in(result) for result in results] == OUTCOMES, results


MOMENTS = {
    "before spawn_sub_agent is begun": "the step of the parent is stored, and there is no sub-agent",
    "after user_message is stored": "a sub-agent has its task; the parent took its own message before",
    "before sub_agent_finished is stored": "a sub-agent has ended, and its parent does not know",
    "after sub_agent_finished is stored": "the parent knows one outcome and waits for others",
    "before answer_sub_agent is begun": "the user has answered, and the sub-agent does not know",
    "after answer_sub_agent is done": "the sub-agent has its answer, and the outbox does not say so",
}


@pytest.fixture(scope="module")
def boundaries(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the boundaries that a process reaches that is not killed."""
    folder = tmp_path_factory.mktemp("whole")
    assert Process(a_family, folder / "conversations.db", folder / "journal.jsonl").wait()
    return Seen.read(folder / "journal.jsonl").boundaries


@pytest.mark.parametrize("moment", MOMENTS if LONG else list(MOMENTS)[2:5:2])
def test_each_outcome_survives_the_death_of_its_process(moment: str, boundaries: list[str], tmp_path: Path) -> None:
    """P24: between the steps of the parent and of its sub-agents; the next process starts nobody a second time."""
    database, journal = tmp_path / "conversations.db", tmp_path / "journal.jsonl"

    assert not Process(a_family, database, journal, boundaries.index(moment) + 1).wait()
    assert check_after_crashes(database, journal, at_rest=False) == []
    assert Process(a_family, database, journal).wait()

    assert check_after_crashes(database, journal) == []


@pytest.mark.skipif(not LONG, reason="a part of `make faults`; two moments that matter are in every run")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_outcome_and_doubles_none(deaths: int) -> None:
    """P24: before and after each commit, each request to a model and each start of a sub-agent; also when the process
    that takes over is killed."""
    report = crash_at_every_boundary(a_family, deaths=deaths)

    assert set(MOMENTS) <= set(report.boundaries)
    assert report.kills >= 60 * deaths
