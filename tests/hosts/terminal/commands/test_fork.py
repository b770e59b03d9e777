"""`turnwise fork`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ....support.terminal import Typed, assert_one_sentence, id_in, run, stored
from ....support.walks import Walk


class TestFork:
    """`turnwise fork`, and `/fork`."""

    def test_it_tells_where_it_landed(self, tmp_path: Path, typed: Typed) -> None:
        """The id of the copy comes first, for scripts; lists and transcripts tell where a copy comes from."""
        stored(tmp_path, Walk("walk").turn("tonight").turn("tomorrow"))

        done = typed("fork", "walk", "--at", "7")

        new_id = done.stdout.split()[0]
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{new_id}  forked from walk at step 5, idle\n"
        assert re.search(rf"^{new_id} .*  forked from walk at step 5$", typed("list").stdout, re.MULTILINE)
        assert typed("show", new_id).stdout.startswith("(forked from walk at step 5)\nuser:\ntonight\n")
        assert typed("replay", new_id).stdout == f"{new_id}  5 events replayed, no divergence.\n"

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["walk", "--at", "0"], "counted from 1"),
            (["walk", "--at", "-1"], "counted from 1"),
            (["walk", "--at", "9"], "cannot be forked at step 9: its newest is 5"),
            (["walk", "--at", "9" * 5_000], "--at takes the number of a step, not 999"),
            (["walk", "--at", "last"], "--at takes the number of a step, not last."),
            (["nobody"], "There is no conversation with the id nobody."),
            (["walk", "--db", "missing.db"], "There is no database called missing.db."),
            (["walk", "--db", ":memory:"], "A database in memory ends with this command"),
        ],
    )
    def test_what_cannot_be_forked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path, typed: Typed
    ) -> None:
        """P33: and nothing is stored, nor is a database made."""
        stored(tmp_path, Walk("walk").turn("tonight"))

        done = typed("fork", *arguments)

        assert_one_sentence(done, sentence)
        assert len(typed("list").stdout.splitlines()) == 1
        assert not (tmp_path / "missing.db").exists()

    def test_in_a_chat(self, tmp_path: Path) -> None:
        """The chat goes on with the original; the copy can be gone on with by its id."""
        done = run("chat", "--tools", "", cwd=tmp_path, lines=["hello", "/fork", "bye"])

        copied = id_in(done.stdout.split("Forked at step 3.")[1])
        again = run("show", copied, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert copied != id_in(done.stdout)
        assert "hello" in again.stdout
        assert "bye" not in again.stdout
