"""The commands as a whole: help, the version, options that cannot be, and results as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ....support.pages import ROOT
from ....support.terminal import InProcessRun, assert_one_sentence, database_with, diverging_walk, run
from ....support.walks import Walk

# --- The commands as a whole: help, the version, and options that cannot be.


COMMANDS = ("chat", "demo", "list", "show", "replay", "resolve", "fork", "export", "import", "diagram", "doctor")


@pytest.mark.slow
def test_the_diagram_is_the_table_in_mermaid(tmp_path: Path) -> None:
    """`turnwise diagram` prints it."""
    done = run("diagram", cwd=tmp_path)

    assert "\nflowchart LR\n" in done.stdout
    assert "\n    start(( )) -->|Opened| start_Idle([Idle])" in done.stdout


class TestHelp:
    """What `--help` shows."""

    @pytest.mark.slow
    def test_it_names_each_command(self, tmp_path: Path) -> None:
        """The commands and options of the README."""
        done = run("--help", cwd=tmp_path)

        for command in COMMANDS:
            assert f" {command} " in done.stdout
        assert "...\n" not in done.stdout.partition("Commands:")[2]  # what a command does fits on its line
        assert (done.returncode, done.stderr) == (0, "")

    def test_that_of_a_chat_lists_the_presets_and_the_built_in_tools(self, in_process: InProcessRun) -> None:
        """The options only name them."""
        done = in_process("chat", "--help")

        assert done.returncode == 0
        for name in ("assistant", "explicit_response", "talk", "ask_user_question", "respond_to_user"):
            assert name in done.stdout

    @pytest.mark.parametrize("command", COMMANDS)
    def test_each_command_has_one(self, command: str, in_process: InProcessRun) -> None:
        """It says how the command is used."""
        done = in_process(command, "--help")

        assert (done.returncode, done.stderr) == (0, "")
        assert f"Usage: turnwise {command} " in done.stdout


def test_the_version_is_one_line(in_process: InProcessRun) -> None:
    """The name of the package and its version."""
    done = in_process("--version")

    assert (done.returncode, done.stderr) == (0, "")
    name, _, version = done.stdout.partition(" ")
    assert name == "turnwise"
    assert version.strip()[0].isdigit()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--nonsense"], "No such option: --nonsense; see turnwise list --help."),
        (["--db", "x.db", "list"], "No such option: --db (the options of a command stand behind its name)"),
        (["show"], "Missing argument 'ID'; see turnwise show --help."),
        (["show", "one", "two"], "two"),
        (["shwo"], "No such command 'shwo'. Did you mean 'show'? See turnwise --help."),
        (["nonsense"], "No such command 'nonsense'; see turnwise --help."),
        (["list", "--db"], "--db"),
        (["list", "--\x1b[31mred"], "No such option: --"),
        (["replay"], "Give the ID of a conversation, or --all."),
        (["replay", "one", "--all"], "Give the ID of a conversation, or --all."),
        (["resolve", "one", "perhaps"], "The verdict is one of ran, did_not_run, again."),
        (["chat", "--resume", "--preset", "talk"], "--system, --preset and --owner are for a new conversation."),
    ],
)
def test_options_that_cannot_be_are_one_sentence(arguments: list[str], sentence: str, in_process: InProcessRun) -> None:
    """On stderr, without a frame, and with exit code 2."""
    done = in_process(*arguments)

    assert_one_sentence(done, sentence)
    assert "\x1b" not in done.stderr
    assert "─" not in done.stderr


def test_without_a_command_the_help_is_shown(in_process: InProcessRun) -> None:
    """And the exit code says that nothing was done."""
    done = in_process()

    assert done.returncode == 2
    assert "Usage: turnwise" in done.stdout
    assert done.stderr == ""


# --- `--json`: the results of `list`, `show` and `replay` as one document.


PAGE = (ROOT / "docs" / "guides" / "terminal.md").read_text(encoding="utf-8")
SCHEMAS = dict(
    zip(("list", "show", "replay"), map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)), strict=True)
)
"""The schemas that the page documents, by command."""


def document(in_process: InProcessRun, *arguments: str, code: int = 0) -> Any:
    """Return the document that a command prints, which must be everything on stdout and follow its schema."""
    done = in_process(*arguments, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.isascii()
    printed = json.loads(done.stdout)
    Draft202012Validator(SCHEMAS[arguments[0]]).validate(printed)
    return printed


class TestList:
    """`turnwise list --json`."""

    def test_it_has_each_conversation(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The one that changed last first, with its state and where it was copied from."""
        database_with(tmp_path, Walk("walk").turn("tonight"), Walk("busy").say("hello"))
        copy = in_process("fork", "walk").stdout.split()[0]

        listed = {each["id"]: each for each in document(in_process, "list")["conversations"]}

        assert listed.keys() == {"walk", "busy", copy}
        assert (listed["walk"]["state"], listed["walk"]["interrupted"]) == ("idle", False)
        assert (listed["busy"]["state"], listed["busy"]["interrupted"]) == ("llm_requesting", True)
        assert listed["walk"]["forked_from"] is None
        assert listed[copy]["forked_from"] == {"id": "walk", "seq": 5}

    def test_an_empty_database_has_none(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """No sentence for people comes with the document."""
        database_with(tmp_path)

        assert document(in_process, "list") == {"conversations": []}


class TestShow:
    """`turnwise show --json`."""

    def test_it_has_the_messages(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """In order, with their roles; control characters are escaped, and nothing is left out."""
        database_with(tmp_path, Walk("walk").turn("tonight \x1b[2J\x9b é 漢"))

        shown = document(in_process, "show", "walk")

        assert shown["id"] == "walk"
        assert shown["messages"][0]["role"] == "user"
        assert shown["messages"][0]["text"] == "tonight \x1b[2J\x9b é 漢"
        assert shown["messages"][-1]["role"] == "assistant"

    def test_it_has_the_events(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """With `--events`, as they are stored."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        shown = document(in_process, "show", "walk", "--events")

        assert [each["seq"] for each in shown["events"]] == [1, 2, 3, 4, 5]
        assert shown["events"][0]["event"]["type"] == "opened"
        assert "messages" not in shown


class TestReplay:
    """`turnwise replay --json`."""

    def test_it_has_each_outcome(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """A divergence has its step, its reason, and what was expected; the exit code is 1."""
        database_with(tmp_path, Walk("sound").turn("tonight"), diverging_walk("other", 2))

        outcomes = {each["id"]: each for each in document(in_process, "replay", "--all", code=1)["conversations"]}

        assert outcomes["sound"] == {"id": "sound", "events": 5, "unreadable": None, "divergence": None}
        divergence = outcomes["other"]["divergence"]
        assert (divergence["seq"], divergence["reason"]) == (2, "Step 2 has other effects now.")
        assert {"type": "abort", "effect_id": 7} in divergence["expected"]["effects"]
        assert {"type": "abort", "effect_id": 7} not in divergence["actual"]["effects"]

    def test_without_conversations_there_are_no_outcomes(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """And no sentence."""
        database_with(tmp_path)

        assert document(in_process, "replay", "--all") == {"conversations": []}


def test_an_error_is_a_sentence_on_stderr(tmp_path: Path, in_process: InProcessRun) -> None:
    """stdout stays empty, so a program never reads half a document."""
    database_with(tmp_path)

    assert_one_sentence(in_process("show", "nonsense", "--json"), "There is no conversation with the id nonsense.")
