"""`turnwise export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise import Conversation

from ....support.terminal import InProcessRun, assert_one_sentence, database_with, execute_sql, run_beside
from ....support.walks import Walk


@pytest.mark.slow
async def test_an_export_is_a_line_for_each_step(asking: Conversation, database: Path) -> None:
    """JSON lines: the format, the conversation, its steps in order, and the number of conversations."""
    done = await run_beside("export", asking.id, "--db", f"sqlite:///{database}", cwd=database.parent)

    header, head, *steps, last = map(json.loads, done.stdout.splitlines())
    assert header["format"] == "turnwise-log"
    assert (head["conversation"], head["seq"], last["conversations"]) == (asking.id, 4, 1)
    assert [step["seq"] for step in steps] == [1, 2, 3, 4]


def test_a_damaged_conversation_is_left_out(tmp_path: Path, in_process: InProcessRun) -> None:
    """The others are exported, and the file can be imported. The exit code is 1."""
    path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
    execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

    everything = in_process("export", "--all")
    alone = in_process("export", "one")
    imported = in_process("import", "-", "--db", "new.db", lines=everything.stdout.splitlines())

    assert (everything.returncode, everything.stderr) == (
        1,
        "one is left out: Step 3 is missing: the file is damaged.\n",
    )
    assert_one_sentence(alone, "Step 3 is missing: the file is damaged.")
    assert imported.stdout == "two  5 steps imported\n"
