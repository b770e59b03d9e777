"""The demonstration: a visitor finds a conversation in each state, and goes on with it without a key."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.hosts.http.demo import PACKING, WHICH_WAY, demo_engine, hold_conversations

from ...support.pages import Page

INTRODUCTION = Page("docs/guides/http.md").text.partition("\n| To |")[0]
SUGGESTIONS = re.findall(r"\*([A-Z][^*]+)\*", INTRODUCTION.replace("\n", " "))
"""What the page about HTTP suggests to say."""


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """The engine that `turnwise serve --demo` serves, open."""
    async with demo_engine() as engine, engine:
        yield engine


async def test_there_is_a_conversation_in_each_state(engine: Engine) -> None:
    """The finished one heads the list; agents that work for others are behind theirs."""
    listed = await engine.list()

    assert listed[0].title == "A weekend in Vienna"
    assert {summary.id: summary.state for summary in listed if summary.role != "sub_agent"} == {
        "vienna": "idle",
        "desk": "idle",
        "scout": "idle",
        "lisbon": "awaiting_user_response",
        "alps": "awaiting_user_response",
        "copenhagen": "awaiting_approval",
        "rome": "failed",
    }
    assert [summary.parent for summary in listed if summary.role == "sub_agent"] == ["scout"] * 3


async def test_each_can_be_replayed(engine: Engine) -> None:
    """What a visitor sees in the inspector follows from the log."""
    for summary in await engine.list():
        conversation = await engine.get(summary.id)

        assert (await conversation.replay()).divergence is None, summary.title


async def test_the_background_agent_has_reached_the_user(engine: Engine) -> None:
    """The desk presents what its scout found out by sub-agents."""
    desk = await engine.get("desk")

    assert "**Vienna** it is" in (await desk.turns())[-1].reply


async def test_a_visitor_goes_on(engine: Engine) -> None:
    """The rehearsal model takes over: after an answer, an approval and a failure, and in new conversations."""
    lisbon, alps, copenhagen, rome = [await engine.get(name) for name in ("lisbon", "alps", "copenhagen", "rome")]
    booking = await copenhagen.wait()

    chosen, packed, booked, retried, found, allowed, spread = await asyncio.gather(
        lisbon.answer({WHICH_WAY["question"]: "With the ferry"}),
        alps.answer({PACKING[0]["question"]: ["Boots", "Poles"], PACKING[1]["question"]: "In huts"}),
        copenhagen.approve(booking.call_id, True),
        rome.retry(),
        *[(await engine.create()).send(suggestion) for suggestion in SUGGESTIONS],
    )

    assert chosen.reply == "You chose With the ferry."
    assert packed.reply == "You chose Boots, Poles, In huts."
    assert "Booked: 2 × EC 191, second class, at the window." in booked.reply
    assert retried.status == "awaiting_user"
    assert [option.label for option in found.questions[0].options] == ["RJX 163", "NJ 467", "EC 191"]
    assert json.loads(allowed.call.raw_arguments)["train"] == "NJ 467"
    assert [line.partition(":")[0] for line in spread.reply.splitlines()] == ["Oslo", "Bergen", "Lisbon"]


async def test_the_conversations_go_on_with_the_model_of_the_visitor(database: Path) -> None:
    """It needs no key until it is asked."""
    await hold_conversations(database, "openai/gpt-4.1-mini")

    async with Engine.open(database) as engine:
        vienna = await engine.get("vienna")
        assert [model.name for model in vienna.policy.models] == ["openai/gpt-4.1-mini"]


async def test_the_database_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left on the visitor's disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async with demo_engine() as engine, engine:
        assert len([*tmp_path.rglob("*.db")]) == 1

    assert [*tmp_path.iterdir()] == []
