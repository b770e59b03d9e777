"""Messages between agents whose process is killed: each is read exactly once by the next one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, presets
from turnwise.states.events import LlmResponse
from turnwise.testing import FunctionLlm, RecordingChannel, calls, crash_at_every_boundary, reply
from turnwise.testing.crashes import Process, Seen, check_after_crashes

from ...support.agents.teams import MAIL_TOOLS, received, tells_agent, tells_user
from ...support.fault_profile import LONG

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(0 if LONG else 240)]

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


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_message_survives_the_death_of_its_process(moment: str, boundaries: list[str], tmp_path: Path) -> None:
    """D1, D6, D9: between the commits of the sender and the target, and between the target's and the acknowledgement;
    the next process delivers it once, and each message that is not silent begins one turn."""
    database, journal = tmp_path / "conversations.db", tmp_path / "journal.jsonl"

    assert not Process(a_table, database, journal, boundaries.index(moment) + 1).wait()
    assert check_after_crashes(database, journal, at_rest=False) == []
    assert Process(a_table, database, journal).wait()

    assert check_after_crashes(database, journal) == []


@pytest.mark.skipif(not LONG, reason="a part of `make faults`; the moments that matter most are in every run")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kill_at_any_boundary_loses_no_message_and_doubles_none(deaths: int) -> None:
    """D1, D6, D9: before and after each commit, each request to a model, each attempt and each delivery; also when the
    process that takes over is killed."""
    report = crash_at_every_boundary(a_table, deaths=deaths)

    assert set(MOMENTS) <= set(report.boundaries)
    assert report.kills >= 50 * deaths
