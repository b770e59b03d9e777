"""`turnwise import`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.terminal import (
    Typed,
    assert_one_sentence,
    export_in,
    run,
    stored,
)
from ....support.walks import Walk


def test_there_and_back(tmp_path: Path) -> None:
    """A whole database in a file, and from it into an empty one: the same bytes again, whatever the terminal's
    encoding."""
    stored(tmp_path, Walk("one").turn("say \x1b[31m寿司\u2028"), Walk("two").question(), Walk("three").say("?"))
    new_id = run("fork", "one", cwd=tmp_path).stdout.split()[0]

    first = run("export", "--all", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    (tmp_path / "all.jsonl").write_text(first.stdout, encoding="utf-8", newline="")
    imported = run("import", "all.jsonl", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    second = run("export", "--all", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")

    assert [done.stderr for done in (first, imported, second)] == ["", "", ""]
    assert first.stdout == second.stdout
    assert imported.stdout == (
        f"one  5 steps imported\ntwo  4 steps imported\nthree  2 steps imported\n{new_id}  5 steps imported\n"
    )
    assert run("replay", "--all", "--db", "new.db", cwd=tmp_path).returncode == 0
    assert run("doctor", "--db", "new.db", cwd=tmp_path).returncode == 0


def test_through_a_pipe(tmp_path: Path, typed: Typed) -> None:
    """`-` is stdin; what is there already is left as it is."""
    stored(tmp_path, Walk("one").turn("tonight"), Walk("two"))
    lines = export_in(typed, "one").decode().splitlines()

    into_another = typed("import", "-", "--db", "new.db", lines=lines)
    into_the_same = typed("import", "-", lines=lines)

    assert into_another.stdout == "one  5 steps imported\n"
    assert into_the_same.stdout == "one  already there\n"
    assert export_in(typed, "one") == export_in(typed, "one", "--db", "new.db")


def test_of_nothing_says_so(tmp_path: Path, typed: Typed) -> None:
    """An empty database can be exported too."""
    stored(tmp_path)
    lines = export_in(typed, "--all").decode().splitlines()

    done = typed("import", "-", "--db", "new.db", lines=lines)

    assert (done.returncode, done.stdout) == (0, "There are no conversations in this export.\n")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "Line 1 is missing: the export was cut off."),
        (["\x1b[2JDear diary"], "Line 1 does not begin an export of turnwise."),
        (['{"format":"turnwise-log","version":2}'], "was written by a newer turnwise"),
        (['{"format":"turnwise-log","version":1}'], "Line 2 is missing: the export was cut off."),
        (['{"format":"turnwise-log","version":1}', "[" * 1_000_000], "Line 2 is not a line of an export."),
    ],
)
def test_what_is_no_export_is_one_sentence(lines: list[str], sentence: str, tmp_path: Path, typed: Typed) -> None:
    """P33: and no database is made."""
    done = typed("import", "-", lines=lines)

    assert_one_sentence(done, sentence)
    assert list(tmp_path.iterdir()) == []


def test_all_or_nothing(tmp_path: Path, typed: Typed) -> None:
    """Of a file that was changed, and of one with an id that another conversation has, nothing comes in."""
    stored(tmp_path, Walk("new"), Walk("taken").turn("tonight"), name="one.db")
    stored(tmp_path, Walk("taken").turn("tomorrow"), name="two.db")
    lines = export_in(typed, "--all", "--db", "one.db").decode().splitlines()
    before = export_in(typed, "--all", "--db", "two.db")

    taken = typed("import", "-", "--db", "two.db", lines=lines)
    lines[5] = lines[5].replace("tonight", "at noon")
    changed = typed("import", "-", "--db", "two.db", lines=lines)

    assert_one_sentence(taken, "There is already another conversation with the id taken; nothing was imported.")
    assert_one_sentence(changed, "Line 6 is not what was exported: it was changed or damaged.")
    assert export_in(typed, "--all", "--db", "two.db") == before
