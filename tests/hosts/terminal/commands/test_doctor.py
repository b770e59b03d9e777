"""`turnwise doctor`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from turnwise import Conversation

from ....support.terminal import (
    COMMAND,
    InProcessRun,
    assert_one_sentence,
    database_with,
    execute_sql,
    run_beside,
)
from ....support.walks import Walk


class TestDoctor:
    """Examining and repairing a database."""

    def test_a_sound_database_is_one_line(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """It counts conversations and steps; the exit code is 0."""
        database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").question())

        done = in_process("doctor")

        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "All is well: 2 conversations, 9 steps.\n",
            "",
        )

    def test_each_finding_is_a_line(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """With the conversation and the step, and below them the command that repairs. The exit code is 1."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        execute_sql(path, "UPDATE events SET payload = '{}' WHERE conversation = 1 AND seq = 4")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")

        done = in_process("doctor")

        assert done.returncode == 1
        assert done.stdout == (
            "one step 4 Step 4 cannot be read: it is damaged, or a newer turnwise wrote it.\n"
            "two step 5 The column waits does not agree with the state and the newest step.\n"
        )
        assert done.stderr == "1 of these can be repaired without guessing: turnwise doctor --fix\n"

    @pytest.mark.slow
    def test_the_command_that_repairs_names_the_database(self, tmp_path: Path) -> None:
        """It can be copied, and stands below the findings if stdout and stderr are one file."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), name="other.db")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'one'")

        command = [*COMMAND, "doctor", "--db", "other.db"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        finding, told = done.stdout.splitlines()
        assert finding.startswith("one step 5 ")
        assert told.endswith(": turnwise doctor --fix --db other.db")

    def test_fix_repairs_and_reports_each_repair(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The exit code is 0 if everything could be repaired, else 1."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        execute_sql(path, "INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL, 0)")
        repaired = in_process("doctor", "--fix")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 4")

        partly_repaired = in_process("doctor", "--fix")

        assert repaired.returncode == 0
        assert repaired.stdout.splitlines() == [
            "one step 5 A delivery waits for the effect 99, which step 5 did not ask for.  Repaired.",
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "All is well: 2 conversations, 10 steps.",
        ]
        assert partly_repaired.returncode == 1
        assert partly_repaired.stdout.splitlines() == [
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "one step 4 Step 4 is missing: the file is damaged.  Not repaired.",
        ]

    def test_a_file_that_cannot_be_opened_is_one_sentence(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """P33: a damaged file that SQLite does not open."""
        path = database_with(tmp_path, Walk("one").turn("tonight"))
        path.write_bytes(path.read_bytes()[:-9_000])

        assert_one_sentence(in_process("doctor"), "turnwise.db cannot be used now: it is damaged.")

    @pytest.mark.slow
    async def test_it_examines_while_an_engine_works(self, busy: Conversation, database: Path) -> None:
        """P42: so do `replay` and `export`. A command that writes does not wait for the lock, and is refused."""
        folder = database.parent
        examined, exported, replayed = [
            await run_beside(*command, "--db", database, cwd=folder)
            for command in (("doctor",), ("export", "--all"), ("replay", "--all"))
        ]
        (folder / "all.jsonl").write_text(exported.stdout, encoding="utf-8")
        refused = [
            await run_beside(*command, "--db", database, cwd=folder)
            for command in (("doctor", "--fix"), ("fork", busy.id), ("import", folder / "all.jsonl"))
        ]

        assert [done.returncode for done in (examined, exported, replayed)] == [0, 0, 0]
        assert examined.stdout == "All is well: 1 conversation, 2 steps.\n"
        assert json.loads(exported.stdout.splitlines()[1])["conversation"] == busy.id
        for done in refused:
            assert_one_sentence(done, "is already open in another engine; close that one first.")
