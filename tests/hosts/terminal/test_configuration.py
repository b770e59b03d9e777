"""Settings of the environment and of turnwise.toml, which tools a chat has, and lines to copy."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from turnwise import Conversation, Engine
from turnwise.hosts.terminal.configuration import command_line, options_for, read_settings, short_ids
from turnwise.persistence.sqlite.file import ALREADY_OPEN

from ...support.terminal import (
    DEMO_TOOLS,
    LOOK_TOOL,
    OWN_TALK_TOOL,
    REQUEST,
    InProcessRun,
    assert_one_sentence,
    database_with,
    output_after_hint,
    run,
    run_beside,
)
from ...support.walks import Walk

# --- Settings of the environment and of turnwise.toml, and what they mean: conversation ids as users write them, and
# the database that is opened.


ALPHA, ALTO = "alpha-0001", "alto-0002"


class TestTheBeginningOfAnId:
    """Wherever an id is expected, its beginning is enough if no other id shares it."""

    @pytest.fixture(autouse=True)
    def two_conversations(self, tmp_path: Path) -> None:
        """Store two conversations whose ids begin alike."""
        database_with(tmp_path, Walk(ALPHA).turn("tonight"), Walk(ALTO).turn("tomorrow"))

    @pytest.mark.parametrize(
        "command",
        [("show", "alp"), ("show", "alp", "--events"), ("replay", "alp"), ("export", "alp"), ("fork", "alp")],
    )
    def test_a_unique_one_names_the_conversation(self, command: tuple[str, ...], in_process: InProcessRun) -> None:
        """Each command does what it does for the whole id."""
        done = in_process(*command)

        assert (done.returncode, done.stderr) == (0, "")
        assert "tomorrow" not in done.stdout

    @pytest.mark.parametrize(
        "command", [("show",), ("replay",), ("export",), ("fork",), ("resolve",), ("resolve", "ran"), ("chat",)]
    )
    def test_one_that_several_share_is_refused_with_the_candidates(
        self, command: tuple[str, ...], in_process: InProcessRun
    ) -> None:
        """One sentence, exit code 2."""
        done = in_process(command[0], "al", *command[1:])

        assert_one_sentence(done, f"2 conversations have an id that begins with al: {ALPHA}, {ALTO}.")

    @pytest.mark.parametrize("given", ["nonsense", "", "%", "ALPHA", "alpha-0001x", "l"])
    def test_one_that_no_id_has_is_refused(self, given: str, in_process: InProcessRun) -> None:
        """Nothing is guessed: neither patterns nor another case nor the middle of an id."""
        done = in_process("show", given)

        assert_one_sentence(done, "There is no conversation with the id ")

    @pytest.mark.slow
    def test_a_chat_is_resumed_by_it(self, tmp_path: Path) -> None:
        """The conversation goes on under its whole id."""
        done = run("chat", "alto", cwd=tmp_path, lines=["/state"])

        assert "idle, after 1 turn and " in done.stdout
        assert f"chat {ALTO}" in done.stdout


def test_a_whole_id_wins_over_longer_ones(tmp_path: Path, in_process: InProcessRun) -> None:
    """An id may be the beginning of another one."""
    database_with(tmp_path, Walk("walk").turn("tonight"), Walk("walk-2").turn("tomorrow"))

    assert "tonight" in in_process("show", "walk").stdout


def test_of_many_candidates_only_some_are_listed(tmp_path: Path, in_process: InProcessRun) -> None:
    """The sentence stays one that can be read."""
    database_with(tmp_path, *(Walk(f"walk-{number}") for number in range(9)))

    assert in_process("show", "walk").stderr.endswith("walk-3, walk-4 and 4 more.\n")


class TestShortIds:
    """The ids of a list on a terminal."""

    def test_each_is_unique_and_at_least_eight_characters_long(self) -> None:
        """Short ids are copied for later use, when there are more conversations."""
        ids = ["12345678-aaaa", "12345678-abbb", "87654321-aaaa", "walk"]

        assert dict(short_ids(ids)) == {
            "12345678-aaaa": "12345678-aa",
            "12345678-abbb": "12345678-ab",
            "87654321-aaaa": "87654321",
            "walk": "walk",
        }

    def test_an_id_that_begins_another_one_is_shown_whole(self) -> None:
        """And the longer one by one character more."""
        assert dict(short_ids(["conversation", "conversation-2"])) == {
            "conversation": "conversation",
            "conversation-2": "conversation-",
        }

    def test_that_of_a_sub_agent_begins_with_that_of_its_conversation(self) -> None:
        """On every level; one whose conversation is not there stands for itself."""
        ids = ["conversation", "conversation/7", "conversation/7/12", "conversation/8/1", "deleted-one/3"]

        assert dict(short_ids(ids)) == {
            "conversation": "conversa",
            "conversation/7": "conversa/7",
            "conversation/7/12": "conversa/7/12",
            "conversation/8/1": "conversa/8/1",
            "deleted-one/3": "deleted-",
        }


class TestTheIdOfASubAgent:
    """Begins with the id of the conversation that started it."""

    @pytest.fixture(autouse=True)
    def agents(self, tmp_path: Path) -> None:
        """Store a conversation with sub-agents, one of which has one of its own."""
        ids = ("team/main-0001", "team/main-0001/7", "team/main-0001/7/3", "team/main-0001/71")
        database_with(tmp_path, *(Walk(each).turn(f"This is {each}.") for each in ids))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("given", "found"),
        [
            ("team/m", "team/main-0001"),
            ("team", "team/main-0001"),
            ("team/main-0001/7", "team/main-0001/7"),
            ("team/m/7", "team/main-0001/7"),
            ("team/m/7/3", "team/main-0001/7/3"),
            ("te/71", "team/main-0001/71"),
        ],
    )
    def test_may_be_shortened_in_front_of_its_number(self, given: str, found: str, in_process: InProcessRun) -> None:
        """And the beginning that all of them share names the conversation."""
        assert f"This is {found}." in in_process("show", given).stdout

    @pytest.mark.parametrize("given", ["team/m/8", "/7", "team/x/7", "/" * 50, "team/m/7/3/1"])
    def test_is_unknown_if_there_is_none(self, given: str, in_process: InProcessRun) -> None:
        """One sentence, exit code 2."""
        assert_one_sentence(in_process("show", given), "There is no conversation with the id ")


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
        assert_one_sentence(done, ALREADY_OPEN)


@pytest.mark.slow
def test_a_newer_database_is_one_sentence(tmp_path: Path) -> None:
    """A database of a newer turnwise is not opened."""
    with Engine.open_blocking(tmp_path / "future.db") as engine:
        engine.create()
    with closing(sqlite3.connect(tmp_path / "future.db", isolation_level=None)) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")

    done = run("list", "--db", "future.db", cwd=tmp_path)

    assert_one_sentence(done, "future.db was written by a newer turnwise")


@pytest.mark.slow
def test_settings_come_from_the_directory(tmp_path: Path) -> None:
    """turnwise.toml names the database and a tool in the working directory; the environment takes precedence."""
    (tmp_path / "turnwise.toml").write_text('db = "unused.db"\ntools = ["mine:greet"]\n', encoding="utf-8")
    tool = 'def greet(name: str) -> str:\n    """Greet somebody."""\n    return f"Good day, {name}."\n'
    (tmp_path / "mine.py").write_text(tool, encoding="utf-8")

    done = run("chat", cwd=tmp_path, lines=["Greet Anna"], TURNWISE_DB="used.db")

    assert '✓ greet(name="Anna")' in done.stdout
    assert "Good day, Anna." in done.stdout
    assert {path.name for path in tmp_path.glob("*.db")} == {"used.db"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("model = ", "turnwise.toml cannot be read"),
        ("modell = 'rehearsal'", "There is no setting called modell. Did you mean model?"),
        ("engine = 'fast'", "There is no setting called engine. Known: db, model, models, tools"),
        ("tools = 3", "The setting tools (in turnwise.toml) is not valid: Input should be a list."),
    ],
)
def test_a_wrong_setting_is_one_sentence(written: str, sentence: str, tmp_path: Path) -> None:
    """A turnwise.toml that is no TOML, or that has an unknown setting or a wrong value."""
    (tmp_path / "turnwise.toml").write_text(written, encoding="utf-8")

    done = run("list", cwd=tmp_path)

    assert_one_sentence(done, sentence)


@pytest.mark.slow
def test_a_wrong_value_that_is_replaced_does_not_matter(tmp_path: Path) -> None:
    """The file is not asked where the environment has a value, also when the chat says how it is resumed."""
    (tmp_path / "turnwise.toml").write_text('agentic_max_turns = "many"', encoding="utf-8")

    done = run("chat", cwd=tmp_path, lines=["Hello"], TURNWISE_AGENTIC_MAX_TURNS="3")

    assert (done.returncode, done.stderr) == (0, "")


# --- Which tools a chat has.


@pytest.mark.slow
def test_missing_tools_are_named(tmp_path: Path) -> None:
    """Tools are not stored: on resuming, a line names those that the conversation used and that are missing."""
    run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "1"])

    without = run("chat", "--resume", cwd=tmp_path)
    beside = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path)

    assert "used are missing now: find_table. Name them with --tools." in without.stdout
    assert "missing" not in beside.stdout


@pytest.mark.slow
def test_a_function_may_replace_a_required_tool(tmp_path: Path) -> None:
    """S16: the built-in tool that a preset requires is left out if a function has its name."""
    (tmp_path / "mine.py").write_text(OWN_TALK_TOOL)

    done = run("chat", "--preset", "talk", "--tools", "mine:talk", cwd=tmp_path, lines=["hello"])

    assert output_after_hint(done).startswith("Mine: ")


@pytest.mark.slow
def test_required_tools_are_added_to_those_that_are_named(tmp_path: Path) -> None:
    """S16: a required tool that is named already, also by its alias, is not added again."""
    (tmp_path / "mine.py").write_text(LOOK_TOOL)
    run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello"])
    options = ("--tools", "mine:look,speak_to_user", "--thoughts")

    done = run("chat", "--resume", *options, cwd=tmp_path, lines=["Look in Rome", "/events"])

    assert '✓ look(place="Rome")' in done.stdout
    assert 'speak_to_user({"text": ' in done.stdout
    assert "missing" not in done.stdout


# --- Command lines for users to copy: a shell reads them as they were meant.


def read_by_a_shell(line: str, cwd: Path) -> list[str]:
    """Return the arguments that a shell passes when it runs this line."""
    function = 'turnwise() { printf "%s\\0" "$@"; }\n'
    done = subprocess.run(["bash", "-c", function + line], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "my dinner.db",
        "it's.db",
        '"$HOME".db',
        "ü ☃.db",
        "-x.db",
        "a\tb.db",
        "a  b.db",
        "a\nb'\\.db",
        "\x1b[31m7.db",
        "a\u202eb.db",
    ],
)
def test_any_name_of_a_database_is_quoted(name: str, tmp_path: Path) -> None:
    """A name may contain invisible and control characters: the command line is still one printable line."""
    line = command_line("chat", "--db", name)

    assert line.isprintable()
    assert read_by_a_shell(line, tmp_path) == ["chat", "--db", name]


def test_a_password_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copies the line has it in a file of their own, as PostgreSQL's programs do."""
    monkeypatch.chdir(tmp_path)

    options = options_for(read_settings(db="postgresql://me:secret@db/dinner"), "db")

    assert options == ["--db", "postgresql://me@db/dinner"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["my tools", "."])
def test_a_command_that_is_not_in_path_is_given_by_its_path(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the path contains a space, or if the command is in the working directory."""
    program = tmp_path / folder / "turnwise"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(Path(folder) / "turnwise")])

    done = subprocess.run(["bash", "-c", command_line("list")], capture_output=True, text=True, check=True)

    assert done.stdout == "list\0"


@pytest.mark.slow
def test_the_resume_hint_works_without_this_environment(tmp_path: Path) -> None:
    """It has the options that came from the environment or the command line, but not those of turnwise.toml."""
    (tmp_path / "turnwise.toml").write_text('tools = ["turnwise.hosts.terminal.demo:find_table"]\n', encoding="utf-8")

    done = run("chat", cwd=tmp_path, TURNWISE_DB="other.db")
    hint = re.search(r"turnwise (chat .*)", done.stdout)

    assert hint is not None
    assert hint[1].split()[2:] == ["--db", "other.db"]
    assert run(*hint[1].split(), cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_the_resume_hint_keeps_the_display_options(tmp_path: Path) -> None:
    """A chat with --thoughts is resumed with --thoughts."""
    done = run("chat", "--thoughts", cwd=tmp_path)

    assert re.search(r"turnwise chat [0-9a-f-]{36} --thoughts$", done.stdout, re.MULTILINE)
