"""`turnwise fork`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ....support.terminal import InProcessRun, assert_one_sentence, conversation_id_in, database_with, run
from ....support.walks import Walk


class TestFork:
    """Copying a conversation, by the command and in a chat."""

    def test_it_prints_the_last_step_of_the_copy(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The id of the copy comes first, for scripts. Lists and transcripts show the origin of a copy."""
        database_with(tmp_path, Walk("walk").turn("tonight").turn("tomorrow"))

        done = in_process("fork", "walk", "--at", "5")

        new_id = done.stdout.split()[0]
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{new_id}  forked from walk at step 5, idle\n"
        assert re.search(rf"^{new_id} .*  forked from walk at step 5$", in_process("list").stdout, re.MULTILINE)
        assert in_process("show", new_id).stdout.startswith("(forked from walk at step 5)\nuser:\ntonight\n")
        assert in_process("replay", new_id).stdout == f"{new_id}  5 events replayed, no divergence.\n"

    def test_between_two_turns(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The line says that a message that waited there is not in the copy."""
        database_with(tmp_path, Walk("walk").say("tonight").say("tomorrow", "queue").reply("At eight."))

        done = in_process("fork", "walk", "--at", "4")

        copied = in_process("show", done.stdout.split()[0]).stdout
        assert done.stdout.endswith("forked from walk at step 4, idle, without 1 message that waited there\n")
        assert ("At eight." in copied, "tomorrow" in copied) == (True, False)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["walk", "--at", "0"], "counted from 1"),
            (["walk", "--at", "-1"], "counted from 1"),
            (["walk", "--at", "9"], "cannot be forked at step 9: its newest is 5"),
            (
                ["walk", "--at", "3"],
                "A copy up to step 3 would lose a turn or a message: fork the conversation at",
            ),
            (["walk", "--at", "9" * 5_000], "--at takes the number of a step, not 999"),
            (["walk", "--at", "last"], "--at takes the number of a step, not last."),
            (["nobody"], "There is no conversation with the id nobody."),
            (["walk", "--db", "missing.db"], "There is no database called missing.db."),
            (["walk", "--db", ":memory:"], "A database in memory ends with this command"),
        ],
    )
    def test_what_cannot_be_forked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
    ) -> None:
        """P33: and neither a conversation nor a database is created."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("fork", *arguments)

        assert_one_sentence(done, sentence)
        assert len(in_process("list").stdout.splitlines()) == 1
        assert not (tmp_path / "missing.db").exists()

    @pytest.mark.slow
    def test_in_a_chat(self, tmp_path: Path) -> None:
        """The chat continues with the original; the copy can be resumed by its id."""
        done = run("chat", "--tools", "", cwd=tmp_path, lines=["hello", "/fork", "bye"])

        copied = conversation_id_in(done.stdout.split("Forked at step 3.")[1])
        again = run("show", copied, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert copied != conversation_id_in(done.stdout)
        assert "hello" in again.stdout
        assert "bye" not in again.stdout
