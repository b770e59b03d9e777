"""`turnwise demo`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ...support.speech.speakers import fake_speaker, fake_speaker_environment
from ...support.terminal import InProcessRun, end_of, run, terminal

pytestmark = pytest.mark.slow


class TestTheDemo:
    """What a user sees first."""

    def test_it_runs_without_a_key_and_without_a_terminal(self, tmp_path: Path) -> None:
        """Text, two tool calls, a question that is answered automatically, states, events, replay, suggestions."""
        done = run("demo", cwd=tmp_path)

        assert (done.returncode, done.stderr) == (0, "")
        for piece in (
            "> A table for two tonight",
            '✓ find_table(cuisine="Japanese", time="tonight", party=2)',
            '✓ check_weather(day="tonight")',
            "1. Kikunoi - 6:30 PM",
            "takes the first option: Kikunoi",
            "You chose Kikunoi.",
            "idle → llm_requesting → tool_executing → ",
            "7  ask_user_question_pending",
            "9 events replayed, no divergence.",
            "OPENAI_API_KEY=… ",
        ):
            assert piece in done.stdout
        assert "\x1b" not in done.stdout
        assert list(tmp_path.iterdir()) == []

    def test_at_a_terminal_the_user_answers(self, tmp_path: Path) -> None:
        """The question is a menu. With `--db` the conversation is kept."""
        with terminal("demo", "--db", "kept.db", cwd=tmp_path) as child:
            child.expect_exact("Which table would you like?")
            child.expect_exact("in your own words")
            child.send("\x1b[B\r")
            child.expect_exact("You chose Nobu.")
            child.expect_exact("no divergence")

            assert end_of(child) == 0
        assert len(run("list", "--db", "kept.db", cwd=tmp_path).stdout.splitlines()) == 1

    def test_its_help_tells_what_its_options_do(self, in_process: InProcessRun) -> None:
        """Tools are added to its own, and it asks one model: nothing in it chooses among several."""
        text = " ".join(in_process("demo", "--help").stdout.split())

        assert "--tools NAMES More tools, beside its own: built-in ones, or package.module:function" in text
        assert "[default: (ask_user_question)]" not in text
        assert "Repeat it" not in text

    def test_tools_are_added_to_its_own(self, tmp_path: Path) -> None:
        """The model is offered both: the rehearsal model looks up what it is offered a tool for."""
        function = 'def find_umbrella(day: str) -> str:\n    """Find an umbrella for two tonight."""\n    return day\n'
        (tmp_path / "mine.py").write_text(function, encoding="utf-8")

        done = run("demo", "--tools", "mine:find_umbrella", cwd=tmp_path)

        assert (done.returncode, done.stderr) == (0, "")
        assert '✓ find_table(cuisine="Japanese", time="tonight", party=2)' in done.stdout
        assert '✓ find_umbrella(day="tonight")' in done.stdout

    def test_its_suggestions_have_its_options(self, tmp_path: Path) -> None:
        """The suggested chats have the same preset and display; each command is one line."""
        done = run("demo", "--preset", "talk", "--thoughts", cwd=tmp_path)

        suggested = re.findall(r"^    (?:OPENAI_API_KEY=… )?turnwise (chat .*)$", done.stdout, re.MULTILINE)
        assert len(suggested) == 3
        assert all(command.endswith(" --preset talk --thoughts") for command in suggested)
        assert run(*suggested[0].split(), cwd=tmp_path).returncode == 0


def test_the_demo_speaks_too(tmp_path: Path) -> None:
    """With `--speak` its answer is also spoken."""
    spoken = fake_speaker(tmp_path)

    done = run("demo", "--speak", cwd=tmp_path, **fake_speaker_environment(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    assert "You chose Kikunoi." in spoken.read_text()
