"""`turnwise list`."""

from __future__ import annotations

from pathlib import Path

from turnwise import Engine
from turnwise.testing import FunctionLlm

from ....support.engine_scenarios import Gate, answers_after
from ....support.terminal import Typed, export_in, run, run_beside, stored
from ....support.walks import Walk


async def test_a_turn_that_died_with_its_process_goes_on(database: Path) -> None:
    """P27, P42: busy while its engine lives, interrupted afterwards, until a program opens it again."""
    gate = Gate()
    model = FunctionLlm(answers_after(gate, "never"), name="rehearsal")
    async with Engine.open(database, model=model) as engine:
        conversation = await engine.create()
        await conversation.send("Hello", wait=False)
        await gate.arrived.wait()
        alive = await run_beside("list", "--db", database, cwd=database.parent)
    dead = run("list", "--db", database, cwd=database.parent)
    chat = run("chat", conversation.id, "--db", database, cwd=database.parent)

    assert alive.stdout.split()[1] == "llm_requesting"
    assert dead.stdout.split()[1] == "interrupted"
    assert (chat.returncode, chat.stderr) == (0, "")
    assert "rehears" in chat.stdout


def test_an_interrupted_one_is_listed_as_such(tmp_path: Path, typed: Typed) -> None:
    """It comes in as it was, and can be read."""
    stored(tmp_path, Walk("walk").say("hello"), name="old.db")
    lines = export_in(typed, "walk", "--db", "old.db").decode().splitlines()

    typed("import", "-", lines=lines)

    assert typed("list").stdout.split()[:2] == ["walk", "interrupted"]
    assert typed("show", "walk").stdout == "user:\nhello\n"
