"""The commands as a whole: help, the version, and options that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.terminal import InProcessRun, assert_one_sentence, run

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
        (["list", "--nonsense"], "No such option: --nonsense"),
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
