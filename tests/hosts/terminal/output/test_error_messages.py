"""Error messages and exit codes of the command."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ....support.terminal import COMMAND, assert_one_sentence, run

pytestmark = pytest.mark.slow


class TestErrors:
    """P33: one sentence on stderr, exit code 2, no traceback."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["list", "--db", "missing.db"], "There is no database to read: missing.db."),
            (["list", "--db", "."], ". is a folder, not a database."),
            (["replay", "--all", "--db", "text.db"], "text.db is not a SQLite database."),
            (["list", "--db", "other.db"], "other.db is the database of another program."),
            (["list", "--db", "oracle://host/db"], "oracle is not supported"),
            (["chat", "--preset", "nonsense"], "There is no preset called nonsense. Known: assistant, reply_flow,"),
            (["chat", "--preset", "sub-agent"], "There is no preset called sub-agent. Known: assistant, reply_flow,"),
            (["chat", "--tools", "nonsense"], "There is no built-in tool called nonsense."),
            (["chat", "--tools", "nonsense:tool"], "There is no module called nonsense"),
            (["chat", "--tools", "broken:tool"], "The module broken cannot be imported: no good."),
            (["chat", "--tools", "mine:nothing"], "There is no nothing in mine."),
            (["chat", "--tools", "mine:untyped"], "The parameter x of untyped has no type."),
            (["demo", "--tools", "mine:number"], "mine:number is not a function"),
            (["chat", "--tools", "a b:c"], "a b:c does not name a tool"),
        ],
    )
    def test_it_is_one_sentence(self, arguments: list[str], sentence: str, tmp_path: Path) -> None:
        """Files that are no databases, and tools and presets that do not exist."""
        (tmp_path / "text.db").write_text("Dear diary, " * 100, encoding="utf-8")
        (tmp_path / "broken.py").write_text("raise RuntimeError('no good')", encoding="utf-8")
        (tmp_path / "mine.py").write_text("number = 4\ndef untyped(x): ...\n", encoding="utf-8")
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            other.execute("CREATE TABLE notes (text)")

        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["chat", "--model", "nonsense"], "The model 'nonsense' is not known"),
            (["demo", "--model", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY."),
        ],
    )
    def test_a_model_that_cannot_be_asked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path
    ) -> None:
        """An unknown model, and a provider without a key. No database is created."""
        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_extra_is_one_sentence(self, tmp_path: Path) -> None:
        """Without the libraries of the extra `terminal` the command says how to install it."""
        program = "import sys; sys.modules['questionary'] = None; from turnwise.hosts.terminal import main; main()"

        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

        assert_one_sentence(done, 'pip install "turnwise[terminal]"')

    def test_a_full_disk_is_one_sentence(self, tmp_path: Path) -> None:
        """The error is reported once, and not again when Python exits."""
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            done = subprocess.run([*COMMAND, "diagram"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (
            2,
            "The operating system reports an error: No space left on device.\n",
        )

    def test_a_closed_pipe_is_no_error_message(self, tmp_path: Path) -> None:
        """`turnwise diagram | head -1` ends without a message when head has ended."""
        reading, writing = os.pipe()
        os.close(reading)

        with os.fdopen(writing, "w") as pipe:
            done = subprocess.run([*COMMAND, "diagram"], stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (1, "")
