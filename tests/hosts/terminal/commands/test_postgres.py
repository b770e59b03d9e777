"""The commands over a database in PostgreSQL: they say what they say over a file with the same conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from turnwise.persistence.opening import open_store

from ....support.cases import holds_for
from ....support.postgres.fixtures import Databases
from ....support.terminal import (
    InProcessRun,
    assert_one_sentence,
    database_with,
    diverging_walk,
    end_of,
    exported,
    terminal,
)
from ....support.walks import Walk

pytestmark = pytest.mark.slow

FILE = "turnwise.db"


@pytest.fixture
def url(postgres_url: str, tmp_path: Path, in_process: InProcessRun) -> str:
    """The URL of a database with the conversations of a file in the working directory."""
    named = {"owner": "anna", "title": "寿司", "metadata": {"tenant": "a"}}
    database_with(
        tmp_path,
        Walk("done", **named).turn("tonight").turn("tomorrow"),
        Walk("asked").question(),
        Walk("busy").say("hello"),
        diverging_walk("diverging", 3),
    )
    assert in_process("fork", "done", "--at", "5").returncode == 0
    done = in_process("copy", FILE, postgres_url)
    assert (done.returncode, done.stderr) == (0, "")
    return postgres_url


COMMANDS = (
    ("list",),
    ("list", "--json"),
    ("list", "--tree", "--owner", "anna"),
    ("show", "done"),
    ("show", "ask", "--events"),
    ("show", "done", "--json"),
    ("replay", "--all"),
    ("replay", "--all", "--json"),
    ("replay", "done"),
    ("export", "--all"),
    ("export", "done", "--format", "openai"),
    ("resolve", "done"),
    ("doctor",),
    ("show", "nobody"),
    ("fork", "done", "--at", "3"),
)


def test_each_says_the_same(url: str, in_process: InProcessRun) -> None:
    """The same lines, and the same exit code."""

    @holds_for("command", COMMANDS)
    def says_the_same(command: tuple[str, ...]) -> None:
        over_server, over_file = (in_process(*command, "--db", each) for each in (url, FILE))

        assert over_server.stdout == over_file.stdout
        assert over_server.stderr == over_file.stderr
        assert over_server.returncode == over_file.returncode

    says_the_same()


def test_copied_back(url: str, in_process: InProcessRun) -> None:
    """A file that went to a server and back is exported to the same bytes."""
    done = in_process("copy", url, "back.db")

    assert done.stdout == "5 conversations: 5 copied and compared (25 steps).\n"
    assert exported(in_process, "--all", "--db", "back.db") == exported(in_process, "--all")


def test_fork_and_import(url: str, in_process: InProcessRun) -> None:
    """A copy within the database, and an export of it into another one."""
    forked = in_process("fork", "done", "--at", "5", "--db", url)
    new_id = forked.stdout.split()[0]
    export = exported(in_process, new_id, "--db", url).decode()

    imported = in_process("import", "-", "--db", "other.db", lines=export.splitlines())
    back = in_process("import", "-", "--db", url, lines=export.splitlines())

    assert forked.stdout == f"{new_id}  forked from done at step 5, idle\n"
    assert imported.stdout == f"{new_id}  5 steps imported\n"
    assert back.stdout == f"{new_id}  already there\n"


def test_a_database_that_is_used_while_it_is_copied(
    postgres_url: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """Nothing locks it, so the copy looks whether it has all of it, and says if not: exit 1. The next one has."""
    walks = [Walk(f"walk-{number}").turn("tonight") for number in range(300)]
    database_with(tmp_path, *walks)
    in_process("copy", FILE, postgres_url)

    async def go_on() -> None:
        store = await open_store(postgres_url)
        await (await store.load("walk-0")).log.append(*walks[0].say("tomorrow").steps[-1])
        await store.close()

    with terminal("copy", postgres_url, "new.db", cwd=tmp_path) as child:
        child.expect(r"copying.*\D[1-9]\d*/300")
        asyncio.run(go_on())
        child.expect_exact("run the same command again.")
        assert end_of(child) == 1
    again = in_process("copy", postgres_url, "new.db")

    renewed = "1 copied and compared (6 steps), 1 of them in place of an earlier copy"
    said = f"300 conversations: {renewed}, 299 there already.\n"
    assert (again.returncode, again.stdout, again.stderr) == (0, said, "")


def test_what_is_wrong_is_found_and_repaired(url: str, in_process: InProcessRun) -> None:
    """Without guessing, as in a file. The command to copy has no password in it."""
    with_password = url.replace("postgres@", "postgres:secret@")
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute("UPDATE conversations SET state_type = 'closed' WHERE id = 'done'")
        administrator.execute("DELETE FROM conversations WHERE id = 'diverging'")

    found = in_process("doctor", "--db", with_password)
    fixed = in_process("doctor", "--db", url, "--fix")
    again = in_process("doctor", "--db", url)

    sentence = "done step 9 The column state_type does not agree with the state and the newest step."
    assert (found.returncode, found.stdout) == (1, f"{sentence}\n")
    assert f"doctor --fix --db {url}" in found.stderr.replace("'", "")
    assert "secret" not in found.stderr
    assert (fixed.returncode, fixed.stdout.splitlines()[0]) == (0, f"{sentence}  Repaired.")
    assert again.stdout == "All is well: 4 conversations, 20 steps.\n"


@pytest.mark.parametrize("command", [*COMMANDS, ("doctor", "--fix"), ("import", "-"), ("serve",), ("chat",)])
def test_what_cannot_be_opened_is_one_sentence(
    command: tuple[str, ...], postgres_url: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """Without a password in it."""
    name = Databases.name_of(postgres_url)
    missing = postgres_url.replace(name, f"{name}_missing").replace("postgres@", "postgres:secret@")
    lines = exported(in_process, "--all", "--db", str(database_with(tmp_path))).decode().splitlines()

    done = in_process(*command, "--db", missing, lines=lines)

    assert_one_sentence(done, f'database "{name}_missing" does not exist')
    assert "secret" not in done.stderr


@pytest.mark.parametrize("command", [("copy", FILE), ("copy", FILE, "--ahead")])
def test_a_file_that_cannot_be_copied_to_a_server(
    command: tuple[str, ...], postgres_url: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """Nor the other way round; no file is made then."""
    database_with(tmp_path)
    name = Databases.name_of(postgres_url)
    missing = postgres_url.replace(name, f"{name}_missing")

    assert_one_sentence(in_process(*command, missing), "does not exist")
    assert_one_sentence(in_process("copy", missing, "new.db", *command[2:]), "does not exist")
    assert not (tmp_path / "new.db").exists()
