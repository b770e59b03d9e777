"""Opening the database of the settings."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnwise import Conversation, Engine

from ....support.terminal import InProcessRun, assert_one_sentence, run, run_beside


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["import", "missing.jsonl"], "missing.jsonl cannot be read: No such file or directory."),
        (["import", "."], ". cannot be read: Is a directory."),
        (["export", "--all"], "There is no database to read: turnwise.db."),
        (["doctor"], "There is no database to read: turnwise.db."),
        (["doctor", "--fix"], "There is no database called turnwise.db."),
        (["resolve", "nobody", "ran"], "There is no database called turnwise.db."),
    ],
)
def test_a_missing_file_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """P33: and no file is created."""
    done = in_process(*arguments)

    assert_one_sentence(done, sentence)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_a_second_engine_is_refused(asking: Conversation, database: Path) -> None:
    """P42: `chat` and `demo` write, and do not wait for the lock: one sentence, exit code 2."""
    chat = await run_beside("chat", "--db", database, cwd=database.parent)
    demo = await run_beside("demo", "--db", database, cwd=database.parent)

    for done in (chat, demo):
        assert_one_sentence(done, "is already open in another engine; close that one first.")


@pytest.mark.slow
def test_a_newer_database_is_one_sentence(tmp_path: Path) -> None:
    """A database of a newer turnwise is not opened."""
    with Engine.open_blocking(tmp_path / "future.db") as engine:
        engine.create()
    with closing(sqlite3.connect(tmp_path / "future.db", isolation_level=None)) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")

    done = run("list", "--db", "future.db", cwd=tmp_path)

    assert_one_sentence(done, "future.db was written by a newer turnwise")
