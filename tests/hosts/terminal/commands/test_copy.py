"""The command `turnwise copy`: what it says, and with which code it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Conversation

from ....support.terminal import (
    InProcessRun,
    assert_one_sentence,
    database_with,
    end_of,
    execute_sql,
    exported,
    run,
    run_beside,
    terminal,
)
from ....support.walks import Walk


def test_there_and_back(tmp_path: Path, in_process: InProcessRun) -> None:
    """The copy of a copy is exported to the same bytes."""
    database_with(tmp_path, Walk("one").turn("寿司"), Walk("two").question(), Walk("three").turn("tonight"))

    first = in_process("copy", "turnwise.db", "there.db")
    second = in_process("copy", "sqlite:///there.db", "back.db")

    said = "3 conversations: 3 copied and compared (14 steps).\n"
    assert [(done.returncode, done.stdout, done.stderr) for done in (first, second)] == [(0, said, "")] * 2
    assert exported(in_process, "--all", "--db", "back.db") == exported(in_process, "--all")


def test_again(tmp_path: Path, in_process: InProcessRun) -> None:
    """What is there and equal is passed over; what only the target has is named, as it may have been deleted."""
    database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
    database_with(tmp_path, Walk("gone").turn("tonight"), name="there.db")
    in_process("copy", "turnwise.db", "there.db")

    again = in_process("copy", "turnwise.db", "there.db")

    assert (again.returncode, again.stdout) == (0, "2 conversations: 2 there already.\n")
    assert again.stderr.startswith("Only the target has gone: if they were copied once and deleted")


def test_an_empty_database(tmp_path: Path, in_process: InProcessRun) -> None:
    """There is nothing to copy."""
    database_with(tmp_path)

    assert in_process("copy", "turnwise.db", "there.db").stdout == "0 conversations.\n"


def test_what_is_damaged_is_named(tmp_path: Path, in_process: InProcessRun) -> None:
    """The others are copied. The exit code is 1."""
    path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
    execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

    done = in_process("copy", "turnwise.db", "there.db")

    assert done.returncode == 1
    assert done.stdout == "2 conversations: 1 copied and compared (5 steps), 1 left out.\n"
    assert done.stderr == "one is left out: Step 3 is missing: the log is damaged.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.db", "there.db"], "There is no database to read: missing.db."),
        (["turnwise.db", ":memory:"], "A database in memory ends with this command"),
        (["sqlite://", "there.db"], "A new database in memory holds nothing that could be read."),
        (["turnwise.db", "no/folder/there.db"], "The folder of no/folder/there.db does not exist."),
        (["turnwise.db"], "Missing argument 'TARGET'"),
    ],
)
def test_what_cannot_be_copied_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """And no database is created."""
    database_with(tmp_path, Walk("one").turn("tonight"))

    assert_one_sentence(in_process("copy", *arguments), sentence)
    assert [path.name for path in tmp_path.glob("*.db")] == ["turnwise.db"]


@pytest.mark.slow
async def test_a_database_in_use(asking: Conversation, database: Path) -> None:
    """It is refused: two engines would act. With --ahead what rests is copied, here a question."""
    refused = await run_beside("copy", database, "there.db", cwd=database.parent)
    ahead = await run_beside("copy", database, "there.db", "--ahead", cwd=database.parent)

    assert_one_sentence(refused, "is in use: end the programs that use it first")
    assert (ahead.returncode, ahead.stdout) == (0, "1 conversation: 1 copied and compared (4 steps).\n")
    assert "Copy the rest without --ahead, once no program uses" in ahead.stderr


@pytest.mark.slow
def test_ctrl_c(tmp_path: Path) -> None:
    """A bar shows how far it is. What was copied stays, and the same command copies the rest."""
    database_with(tmp_path, *(Walk(f"walk-{number}").turn("tonight") for number in range(1000)))
    with terminal("copy", "turnwise.db", "there.db", cwd=tmp_path) as child:
        child.expect(r"copying.* [1-9]\d*/1000")
        child.send("\x03")
        child.expect(r"Interrupted after (\d+) of 1000; the same command goes on from there\.")
        copied = int(child.match[1])
        assert end_of(child) == 130
    with terminal("copy", "turnwise.db", "there.db", cwd=tmp_path) as child:
        child.expect(r"1000 conversations: (\d+) copied and compared \(\d+ steps\), (\d+) there already\.")
        assert int(child.match[2]) >= copied > 0
        assert end_of(child) == 0
    assert run("doctor", "--db", "there.db", cwd=tmp_path).stdout == "All is well: 1000 conversations, 5000 steps.\n"
