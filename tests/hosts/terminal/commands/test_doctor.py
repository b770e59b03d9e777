"""`turnwise doctor`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from turnwise import Conversation

from ....support.terminal import (
    COMMAND,
    Typed,
    assert_one_sentence,
    change,
    run_beside,
    stored,
)
from ....support.walks import Walk


class TestDoctor:
    """`turnwise doctor`."""

    def test_all_is_well_in_one_line(self, tmp_path: Path, typed: Typed) -> None:
        """Exit 0."""
        stored(tmp_path, Walk("one").turn("tonight"), Walk("two").question())

        done = typed("doctor")

        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "All is well: 2 conversations, 9 steps.\n",
            "",
        )

    def test_each_finding_is_a_line(self, tmp_path: Path, typed: Typed) -> None:
        """With the conversation and the step; exit 1; and how to mend what can be mended."""
        path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        change(path, "UPDATE events SET payload = '{}' WHERE conversation = 1 AND seq = 4")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")

        done = typed("doctor")

        assert done.returncode == 1
        assert done.stdout == (
            "one step 4 Step 4 cannot be read: it is damaged, or a newer turnwise wrote it.\n"
            "two step 5 The column waits does not agree with the state and the newest step.\n"
        )
        assert done.stderr == "1 of these can be repaired without guessing: turnwise doctor --fix\n"

    def test_the_way_to_mend_names_the_database(self, tmp_path: Path) -> None:
        """It can be typed as it is told, and is told below the findings, where both go to one file."""
        path = stored(tmp_path, Walk("one").turn("tonight"), name="other.db")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'one'")

        command = [*COMMAND, "doctor", "--db", "other.db"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        finding, told = done.stdout.splitlines()
        assert finding.startswith("one step 5 ")
        assert told.endswith(": turnwise doctor --fix --db other.db")

    def test_fix_mends_and_says_what_it_did(self, tmp_path: Path, typed: Typed) -> None:
        """What cannot be mended is told too, and then the exit code is 1; once all is well it is 0."""
        path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        change(path, "INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL)")
        mended = typed("doctor", "--fix")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        change(path, "DELETE FROM events WHERE conversation = 1 AND seq = 4")

        in_part = typed("doctor", "--fix")

        assert mended.returncode == 0
        assert mended.stdout.splitlines() == [
            "one step 5 A delivery waits for the effect 99, which is none of that step's.  Repaired.",
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "All is well: 2 conversations, 10 steps.",
        ]
        assert in_part.returncode == 1
        assert in_part.stdout.splitlines() == [
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "one step 4 Step 4 is missing: the file is damaged.  Not repaired.",
        ]

    def test_a_file_that_cannot_be_opened_is_one_sentence(self, tmp_path: Path, typed: Typed) -> None:
        """P33: there is nothing to examine then."""
        path = stored(tmp_path, Walk("one").turn("tonight"))
        path.write_bytes(path.read_bytes()[:-9_000])

        assert_one_sentence(typed("doctor"), "turnwise.db cannot be used now: it is damaged.")

    async def test_it_looks_while_an_engine_works(self, busy: Conversation, database: Path) -> None:
        """P42: and so do `replay` and `export`; what changes something waits for nobody, and is refused."""
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
