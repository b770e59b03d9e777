"""Agents whose process is killed: mail, sub-agents and wake-ups are each there exactly once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import Conversation, Engine, SubAgentRules, presets
from turnwise.states import Idle, UserMessage
from turnwise.states.events import LlmResponse
from turnwise.testing import FunctionLlm, ManualClock, RecordingChannel, call, calls, crash_at_every_boundary, reply
from turnwise.testing.crashes import Process, Seen, check_after_crashes
from turnwise.testing.doubles import NOON

from ...support.agents.teams import MAIL_TOOLS, received, tells_agent, tells_user
from ...support.engine_scenarios import QUESTION
from ...support.families import GO, finished, first_text, outcomes_in, spawn, spawned
from ...support.fault_profile import LONG

# --- Messages between agents whose process is killed: each is read exactly once by the next one.


WRITES = [
    tells_user("Table 4 is free."),
    calls(tells_agent("It rains.", silent=True), tells_user("Table 4 is booked.")),
    reply("Done."),
]
"""What the background agent does, by the number of answers that its model has given before."""


def background_answer(request: Any) -> Any:
    """Return the answer that follows from the request, so that the agent goes on after a crash."""
    return WRITES[sum(message["role"] == "assistant" for message in request.messages)]


def foreground_answer(request: Any) -> Any:
    """Return the newest message of the request in other words."""
    return reply(f"Told: {str(request.messages[-1]['content']).count('Table 4')}")


async def agent_of(engine: Engine, role: Any, **chosen: Any) -> Conversation:
    """Return the agent of this role, which is created unless an earlier process did."""
    known = await engine.list(role=role)
    return await engine.get(known[0].id) if known else await engine.create(role=role, **chosen)


async def a_table(database: Path) -> None:
    """A background agent writes three messages to its foreground agent, one of them silent."""
    models = [FunctionLlm(foreground_answer, name="fg"), FunctionLlm(background_answer, name="bg")]
    opening = Engine.open(
        database, model=models[0], models=models[1:], tools=list(MAIL_TOOLS), channels=[RecordingChannel()]
    )
    async with opening as engine:
        front = await agent_of(engine, "foreground", model="fg", policy=presets.foreground())
        back = await agent_of(engine, "background", model="bg", works_for=front)
        turn = await back.send("A table for two.", message_id="m1")
        assert turn.status == "completed", turn
        while await engine.store.outbox(await engine.store.ids()) or front.state.type != "idle":
            await asyncio.sleep(0.002)
        await check_that_each_was_read_once(front, back)


async def check_that_each_was_read_once(front: Conversation, back: Conversation) -> None:
    """Check the log of the target: each message once, in order, and one answer of its model for each that is not
    silent."""
    messages = await received(front)
    assert [message.text for message in messages] == ["Table 4 is free.", "It rains.", "Table 4 is booked."], messages
    assert {message.origin for message in messages} == {back.id}
    answers = [entry for entry in await front.events() if isinstance(entry.event, LlmResponse)]
    assert len(answers) == 2, answers
    assert [turn.status for turn in await front.turns()] == ["completed"] * 2
    entered = [message.text for message in await front.transcript() if message.audience is not None]
    assert entered == [message.text for message in messages], entered
    assert await received(back) == []


MOMENTS = {
    "before send_to_agent is begun": "the sender's step is stored, and the target knows nothing of it",
    "before agent_message is stored": "the message is on its way",
    "after agent_message is stored": "the target has it, and the sender does not know",
    "after send_to_agent is done": "the receipt is not stored yet",
}


@pytest.fixture(scope="module")
def boundaries(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the boundaries that a process reaches that is not killed."""
    folder = tmp_path_factory.mktemp("whole")
    assert Process(a_table, folder / "conversations.db", folder / "journal.jsonl").wait()
    return Seen.read(folder / "journal.jsonl").boundaries


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(0 if LONG else 240)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_message_survives_the_death_of_its_process(moment: str, boundaries: list[str], tmp_path: Path) -> None:
    """D1, D6, D9: between the commits of the sender and the target, and between the target's and the acknowledgement;
    the next process delivers it once, and each message that is not silent begins one turn."""
    database, journal = tmp_path / "conversations.db", tmp_path / "journal.jsonl"

    assert not Process(a_table, database, journal, boundaries.index(moment) + 1).wait()
    assert check_after_crashes(database, journal, at_rest=False) == []
    assert Process(a_table, database, journal).wait()

    assert check_after_crashes(database, journal) == []


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(0 if LONG else 240)
@pytest.mark.skipif(not LONG, reason="a part of `make faults`; the moments that matter most are in every run")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_message_and_doubles_none(deaths: int) -> None:
    """D1, D6, D9: before and after each commit, each request to a model, each attempt and each delivery; also when the
    process that takes over is killed."""
    report = crash_at_every_boundary(a_table, deaths=deaths)

    assert set(MOMENTS) <= set(report.boundaries)
    assert report.kills >= 50 * deaths


# --- Sub-agents whose process is killed: each is started once, and each outcome reaches the model once. P24.


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


SUB_AGENT_KILLS_MOMENTS = {
    "before spawn_sub_agent is begun": "the step of the parent is stored, and there is no sub-agent",
    "after user_message is stored": "a sub-agent has its task; the parent took its own message before",
    "before sub_agent_finished is stored": "a sub-agent has ended, and its parent does not know",
    "after sub_agent_finished is stored": "the parent knows one outcome and waits for others",
    "before answer_sub_agent is begun": "the user has answered, and the sub-agent does not know",
    "after answer_sub_agent is done": "the sub-agent has its answer, and the outbox does not say so",
}


@pytest.fixture(scope="module")
def sub_agent_kills_boundaries(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the boundaries that a process reaches that is not killed."""
    folder = tmp_path_factory.mktemp("whole")
    assert Process(a_family, folder / "conversations.db", folder / "journal.jsonl").wait()
    return Seen.read(folder / "journal.jsonl").boundaries


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(0 if LONG else 240)
@pytest.mark.parametrize("moment", SUB_AGENT_KILLS_MOMENTS if LONG else list(SUB_AGENT_KILLS_MOMENTS)[2:5:2])
def test_each_outcome_survives_the_death_of_its_process(
    moment: str, sub_agent_kills_boundaries: list[str], tmp_path: Path
) -> None:
    """P24: between the steps of the parent and of its sub-agents; the next process starts nobody a second time."""
    database, journal = tmp_path / "conversations.db", tmp_path / "journal.jsonl"

    assert not Process(a_family, database, journal, sub_agent_kills_boundaries.index(moment) + 1).wait()
    assert check_after_crashes(database, journal, at_rest=False) == []
    assert Process(a_family, database, journal).wait()

    assert check_after_crashes(database, journal) == []


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(0 if LONG else 240)
@pytest.mark.skipif(not LONG, reason="a part of `make faults`; two moments that matter are in every run")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_outcome_and_doubles_none(deaths: int) -> None:
    """P24: before and after each commit, each request to a model and each start of a sub-agent; also when the process
    that takes over is killed."""
    report = crash_at_every_boundary(a_family, deaths=deaths)

    assert set(SUB_AGENT_KILLS_MOMENTS) <= set(report.boundaries)
    assert report.kills >= 60 * deaths


# --- A conversation with a schedule whose process is killed wakes up exactly once.


def newest_moment(database: Path) -> datetime:
    """When the newest step was stored: a process that comes later begins no earlier."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (at,) = connection.execute("SELECT max(at) FROM events").fetchone()
    except sqlite3.OperationalError:  # there is no database yet
        at = None
    return NOON if at is None else datetime.fromtimestamp(at / 1_000_000, UTC)


async def one_hour(database: Path) -> None:
    """An hour passes, and the hourly task is done."""
    clock = ManualClock(newest_moment(database))
    due = NOON + timedelta(hours=1)
    async with Engine.open(database, model=FunctionLlm(lambda request: "I have looked."), clock=clock) as engine:
        known = await engine.list()
        scout = await engine.get(known[0].id) if known else await engine.create(every=3600, task="Look around.")
        await clock.until_asleep()
        await clock.advance_to(due + timedelta(minutes=1))
        while scout.state.book.turn < 1 or not isinstance(scout.state, Idle):
            await asyncio.sleep(0.002)

        tasks = [message.text for message in await scout.transcript() if message.origin == "schedule"]
        assert tasks == ["Look around."], tasks
        assert [turn.status for turn in await scout.turns()] == ["completed"]
        assert scout.next_wake == due + timedelta(hours=1)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(0 if LONG else 240)
@pytest.mark.skipif(not LONG, reason="a part of `make faults`")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_wake_up_and_doubles_none(deaths: int) -> None:
    """Before and after the commit of the wake-up, and anywhere in its turn; also when the next process is killed."""
    report = crash_at_every_boundary(one_hour, deaths=deaths)

    assert report.kills >= 6
