"""`turnwise list`."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.testing import FunctionLlm

from ....support.engine_scenarios import Gate, answers_after
from ....support.terminal import InProcessRun, database_with, exported, run, run_beside
from ....support.walks import Walk


@pytest.mark.slow
async def test_an_interrupted_turn_is_listed_and_continues(database: Path) -> None:
    """P27, P42: its state is shown while its engine is open, "interrupted" afterwards; a chat continues it."""
    gate = Gate()
    model = FunctionLlm(answers_after(gate, "never"), name="rehearsal")
    async with Engine.open(database, model=model) as engine:
        conversation = await engine.create()
        await conversation.send("Hello", wait=False)
        await gate.arrived.wait()
        open_ = await run_beside("list", "--db", database, cwd=database.parent)
    closed = run("list", "--db", database, cwd=database.parent)
    chat = run("chat", conversation.id, "--db", database, cwd=database.parent)

    assert open_.stdout.split()[1] == "llm_requesting"
    assert closed.stdout.split()[1] == "interrupted"
    assert (chat.returncode, chat.stderr) == (0, "")
    assert "rehears" in chat.stdout


def test_an_imported_turn_has_failed(tmp_path: Path, in_process: InProcessRun) -> None:
    """It was under way when it was exported, and goes on only if somebody tries again. What was said can be read."""
    database_with(tmp_path, Walk("walk").say("hello"), name="old.db")
    lines = exported(in_process, "walk", "--db", "old.db").decode().splitlines()

    in_process("import", "-", lines=lines)

    assert in_process("list").stdout.split()[:2] == ["walk", "failed"]
    assert in_process("show", "walk").stdout.startswith("user:\nhello\n")


@pytest.mark.slow
async def test_a_part_of_the_list(database: Path) -> None:
    """Those of one owner, or the newest few."""
    async with Engine.open(database) as engine:
        first, second, third = [await engine.create(owner=owner) for owner in ("ann", "bob", "ann")]

    def listed(*options: str) -> list[str]:
        ran = run("list", *options, "--db", database, cwd=database.parent)
        assert (ran.returncode, ran.stderr) == (0, "")
        return [line.split()[0] for line in ran.stdout.splitlines()]

    assert listed("--owner", "ann") == [third.id, first.id]
    assert listed("--limit", "2") == [third.id, second.id]
    assert listed("--owner", "ann", "--limit", "1") == [third.id]


@pytest.mark.slow
async def test_an_owner_without_conversations(database: Path) -> None:
    """Says so, on stderr."""
    async with Engine.open(database) as engine:
        await engine.create(owner="ann")

    ran = run("list", "--owner", "eve", "--db", database, cwd=database.parent)

    assert (ran.returncode, ran.stdout) == (0, "")
    assert "of this owner" in ran.stderr


def test_the_states_take_as_much_room_as_they_need(tmp_path: Path, in_process: InProcessRun) -> None:
    """So titles are legible in a narrow terminal, and stand in one column."""
    database_with(tmp_path, Walk("a").turn("hello"), Walk("b").say("hello"), name="turnwise.db")

    idle, interrupted = sorted(in_process("list").stdout.splitlines())

    assert interrupted.startswith("b  interrupted  2") and idle.startswith("a  idle         2")


def test_the_states_stand_in_one_column(tmp_path: Path, in_process: InProcessRun) -> None:
    """Also behind the ids of sub-agents, which are longer than the others."""
    sub_agent = Walk("conversation/12", role="sub_agent", parent="conversation")
    database_with(tmp_path, Walk("conversation"), sub_agent, name="turnwise.db")

    lines = in_process("list").stdout.splitlines()

    assert {line.index("  idle  ") for line in lines} == {len("conversation/12")}
