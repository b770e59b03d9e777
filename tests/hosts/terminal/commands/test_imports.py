"""`turnwise import`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.terminal import (
    InProcessRun,
    assert_one_sentence,
    database_with,
    exported,
    run,
)
from ....support.walks import Walk


@pytest.mark.slow
def test_there_and_back(tmp_path: Path) -> None:
    """A database that is exported and imported into an empty one is exported to the same bytes, whatever the terminal's
    encoding."""
    database_with(tmp_path, Walk("one").turn("say \x1b[31m寿司\u2028"), Walk("two"), Walk("three").turn("?"))
    new_id = run("fork", "one", cwd=tmp_path).stdout.split()[0]

    first = run("export", "--all", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    (tmp_path / "all.jsonl").write_text(first.stdout, encoding="utf-8", newline="")
    imported = run("import", "all.jsonl", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    second = run("export", "--all", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")

    assert [done.stderr for done in (first, imported, second)] == ["", "", ""]
    assert first.stdout == second.stdout
    assert imported.stdout == (
        f"one  5 steps imported\ntwo  1 step imported\nthree  5 steps imported\n{new_id}  5 steps imported\n"
    )
    assert run("replay", "--all", "--db", "new.db", cwd=tmp_path).returncode == 0
    assert run("doctor", "--db", "new.db", cwd=tmp_path).returncode == 0


def test_what_was_under_way_is_closed(tmp_path: Path, in_process: InProcessRun) -> None:
    """Who imports it is told, and the log replays."""
    database_with(tmp_path, Walk("one").question(), Walk("two").turn("tonight"))
    lines = exported(in_process, "--all").decode().splitlines()

    done = in_process("import", "-", "--db", "new.db", lines=lines)

    assert done.stdout == "one  5 steps imported, what was under way in it is closed\ntwo  5 steps imported\n"
    assert in_process("replay", "--all", "--db", "new.db").returncode == 0
    assert in_process("doctor", "--db", "new.db").returncode == 0


def test_through_a_pipe(tmp_path: Path, in_process: InProcessRun) -> None:
    """`-` is stdin. A conversation that is there already does not change."""
    database_with(tmp_path, Walk("one").turn("tonight"), Walk("two"))
    lines = exported(in_process, "one").decode().splitlines()

    into_another = in_process("import", "-", "--db", "new.db", lines=lines)
    into_the_same = in_process("import", "-", lines=lines)

    assert into_another.stdout == "one  5 steps imported\n"
    assert into_the_same.stdout == "one  already there\n"
    assert exported(in_process, "one") == exported(in_process, "one", "--db", "new.db")


def test_an_export_without_conversations(tmp_path: Path, in_process: InProcessRun) -> None:
    """An empty database can be exported and imported."""
    database_with(tmp_path)
    lines = exported(in_process, "--all").decode().splitlines()

    done = in_process("import", "-", "--db", "new.db", lines=lines)

    assert (done.returncode, done.stdout) == (0, "There are no conversations in this export.\n")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "Line 1 is missing: the export was cut off."),
        (["\x1b[2JDear diary"], "Line 1 does not begin an export of turnwise."),
        (['[{"role": "user", "content": "Hello"}]'], "with --format openai."),
        (['{"messages": []}'], "with --format openai."),
        (['{"format":"turnwise-log","version":2}'], "was written by a newer turnwise"),
        (['{"format":"turnwise-log","version":1}'], "Line 2 is missing: the export was cut off."),
        (['{"format":"turnwise-log","version":1}', "[" * 1_000_000], "Line 2 is not a line of an export."),
    ],
)
def test_a_file_that_is_no_export_is_one_sentence(
    lines: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """P33: and no database is created."""
    done = in_process("import", "-", lines=lines)

    assert_one_sentence(done, sentence)
    assert list(tmp_path.iterdir()) == []


def test_all_or_nothing(tmp_path: Path, in_process: InProcessRun) -> None:
    """Nothing is imported from a file that was changed, or with an id that another conversation has."""
    database_with(tmp_path, Walk("new"), Walk("taken").turn("tonight"), name="one.db")
    database_with(tmp_path, Walk("taken").turn("tomorrow"), name="two.db")
    lines = exported(in_process, "--all", "--db", "one.db").decode().splitlines()
    before = exported(in_process, "--all", "--db", "two.db")

    taken = in_process("import", "-", "--db", "two.db", lines=lines)
    lines[5] = lines[5].replace("tonight", "at noon")
    changed = in_process("import", "-", "--db", "two.db", lines=lines)

    assert_one_sentence(taken, "There is already another conversation with the id taken; nothing was imported.")
    assert_one_sentence(changed, "Line 6 is not what was exported: it was changed or damaged.")
    assert exported(in_process, "--all", "--db", "two.db") == before
