"""`turnwise export`."""

from __future__ import annotations

import json
from pathlib import Path

from turnwise import Conversation

from ....support.terminal import Typed, assert_one_sentence, change, run_beside, stored
from ....support.walks import Walk


async def test_an_export_is_a_line_for_each_step(asking: Conversation, database: Path) -> None:
    """JSON lines: the name of the format, the conversation, its steps in order, and how many there were."""
    done = await run_beside("export", asking.id, "--db", f"sqlite:///{database}", cwd=database.parent)

    header, head, *steps, last = map(json.loads, done.stdout.splitlines())
    assert header["format"] == "turnwise-log"
    assert (head["conversation"], head["seq"], last["conversations"]) == (asking.id, 4, 1)
    assert [step["seq"] for step in steps] == [1, 2, 3, 4]


def test_what_is_damaged_is_left_out(tmp_path: Path, typed: Typed) -> None:
    """The others are exported, and the file can be imported; exit 1 tells that something is missing."""
    path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
    change(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

    everything = typed("export", "--all")
    alone = typed("export", "one")
    imported = typed("import", "-", "--db", "new.db", lines=everything.stdout.splitlines())

    assert (everything.returncode, everything.stderr) == (
        1,
        "one is left out: Step 3 is missing: the file is damaged.\n",
    )
    assert_one_sentence(alone, "Step 3 is missing: the file is damaged.")
    assert imported.stdout == "two  5 steps imported\n"
