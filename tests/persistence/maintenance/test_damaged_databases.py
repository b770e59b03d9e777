"""Damage stays where it is: whatever goes through all conversations goes on, and names what it cannot read."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from turnwise.persistence.sqlite.store import SqliteStore

from ...support.terminal import run
from ...support.walks import Walk

pytestmark = pytest.mark.slow

NAMES = [f"conversation-{number:02}" for number in range(40)]
PAGE = 4096


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A database of forty conversations that nobody has open."""
    path = tmp_path / "turnwise.db"
    store = await SqliteStore.open(path)
    for name in NAMES:
        walk = Walk(name)
        for number in range(2):
            walk.turn(f"{number} " * 500)
        await walk.into(store)
    await store.close()
    return path


def pages_of(database: Path, table: str) -> list[int]:
    """The pages of a table or an index, the root first; as SQLite's own file format says it."""
    data = database.read_bytes()
    with closing(sqlite3.connect(database)) as look:
        (root,) = look.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    pages, left = [], [root]
    while left:
        page = left.pop()
        pages.append(page)
        start = (page - 1) * PAGE
        if data[start] in (2, 5):  # an interior page: its children
            count = int.from_bytes(data[start + 3 : start + 5], "big")
            cells = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(count)]
            left += [int.from_bytes(data[start + cell : start + cell + 4], "big") for cell in cells]
            left.append(int.from_bytes(data[start + 8 : start + 12], "big"))
    return pages


def write(database: Path, at: int, data: bytes) -> None:
    """Write bytes into the file, as a failing disk does."""
    with database.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip_in_table(database: Path, bit: int) -> None:
    """Flip a bit in the id of a conversation, where its row is."""
    data = database.read_bytes()
    for page in pages_of(database, "conversations"):
        start = data.find(b"conversation-07", (page - 1) * PAGE, page * PAGE)
        if start >= 0:
            return write(database, start + 13, bytes([data[start + 13] ^ bit]))
    raise AssertionError("the id is not in the table")


def flip_in_index(database: Path, bit: int) -> None:
    """Flip a bit in the id of a conversation, where it is looked up."""
    data = database.read_bytes()
    for page in pages_of(database, "sqlite_autoindex_conversations_1"):
        start = data.find(b"conversation-07", (page - 1) * PAGE, page * PAGE)
        if start >= 0:
            return write(database, start + 13, bytes([data[start + 13] ^ bit]))
    raise AssertionError("the id is not in the index")


def noise(database: Path, table: str, which: int) -> None:
    """Fill a page of a table with noise."""
    write(database, (pages_of(database, table)[which] - 1) * PAGE, bytes(range(256)) * (PAGE // 256))


DAMAGES = {
    "a bit of an id": lambda database: flip_in_table(database, 1),
    "an id that is no text": lambda database: flip_in_table(database, 128),
    "a bit of an id in the index": lambda database: flip_in_index(database, 1),
    "an id in the index that is no text": lambda database: flip_in_index(database, 128),
    "a page of steps": lambda database: noise(database, "events", 3),
    "a page of conversations": lambda database: noise(database, "conversations", 1),
    "a page of the index": lambda database: noise(database, "sqlite_autoindex_conversations_1", -1),
}


class TestGoingOn:
    """One conversation is damaged, or a page of a table."""

    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("command", [["doctor"], ["replay", "--all"], ["export", "--all"], ["list"]])
    def test_the_others_are_reached(self, database: Path, damage: str, command: list[str]) -> None:
        """Most of forty conversations are whole: each command says so of them, names what it cannot read, and exits
        with 1. A list that can be shown in full exits with 0."""
        DAMAGES[damage](database)

        done = run(*command, cwd=database.parent)

        assert "Traceback" not in done.stderr
        if command == ["doctor"]:
            assert "All is well" not in done.stdout
            assert done.returncode == 1
            assert "damage" in done.stdout + done.stderr or "malformed" in done.stdout
            return
        if command == ["list"]:
            assert sum(name in done.stdout for name in NAMES) >= 10
            assert done.returncode == (1 if sum(name in done.stdout for name in NAMES) < 19 else done.returncode)
            return
        if command[0] == "export":
            reached = sum(json.loads(line).get("conversation") in NAMES for line in done.stdout.splitlines())
        else:
            reached = sum(line.split("  ")[0] in NAMES and "no divergence" in line for line in done.stdout.splitlines())
        assert reached >= 10, done.stdout[-2000:] + done.stderr
        assert done.returncode == 1


def recovered(database: Path, *, revision: bool) -> Path:
    """The database as another program has put it together again: its tables and their rows, and not its marks."""
    path = database.with_name("recovered.db")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(path)) as target:
        target.executescript("\n".join(source.iterdump()))
        if not revision:
            target.execute("DROP TABLE alembic_version")
        target.commit()
    return path


class TestRecovered:
    """A file that another program has put together again from what it found."""

    @pytest.mark.parametrize("revision", [True, False])
    def test_the_doctor_says_what_is_missing_and_sets_it(self, database: Path, revision: bool) -> None:
        """Other commands refuse the file in one sentence that names the doctor. Afterwards all is well."""
        path = recovered(database, revision=revision)

        refused = run("list", "--db", path.name, cwd=path.parent)
        said = run("doctor", "--db", path.name, cwd=path.parent)
        fixed = run("doctor", "--fix", "--db", path.name, cwd=path.parent)
        after = run("doctor", "--db", path.name, cwd=path.parent)

        assert refused.returncode == 2
        assert "turnwise doctor --fix" in refused.stderr
        assert said.returncode == 1
        assert "The application id is missing" in said.stdout
        assert ("The revision of the tables is missing" in said.stdout) == (not revision)
        assert (fixed.returncode, after.returncode) == (0, 0)
        assert "All is well: 40 conversations" in after.stdout

    @pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the program sqlite3")
    def test_of_a_file_with_a_page_of_noise(self, database: Path) -> None:
        """The section on saving what can be saved, as it says: put the rows together, let the doctor set the marks,
        and export the rest. Where the program can do `.recover`, its output has the same shape."""
        noise(database, "events", 3)
        folder = database.parent
        dump = subprocess.run(["sqlite3", database.name, ".dump"], cwd=folder, capture_output=True, check=False)
        lines = [b"COMMIT;" if line.startswith(b"ROLLBACK;") else line for line in dump.stdout.splitlines()]
        subprocess.run(
            ["sqlite3", "recovered.db"], input=b"\n".join(lines), cwd=folder, capture_output=True, check=False
        )

        fixed = run("doctor", "--fix", "--db", "recovered.db", cwd=folder)
        exported = run("export", "--all", "--db", "recovered.db", cwd=folder)
        (folder / "rest.jsonl").write_text(exported.stdout)
        imported = run("import", "rest.jsonl", "--db", "new.db", cwd=folder)
        after = run("doctor", "--db", "new.db", cwd=folder)

        assert "The application id is missing" in fixed.stdout
        assert exported.returncode == 1
        assert imported.returncode == 0
        assert after.returncode == 0
        assert len(imported.stdout.splitlines()) >= 10

    def test_a_file_of_another_program_stays_one(self, tmp_path: Path) -> None:
        """Although it has a table of the same name."""
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            other.execute("CREATE TABLE conversations (id)")
            other.commit()

        said = run("doctor", "--fix", "--db", "other.db", cwd=tmp_path)

        assert said.returncode == 2
        assert "is the database of another program" in said.stderr
