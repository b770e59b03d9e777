"""`turnwise chat`: messages, answers and commands, through a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.servers.openai_server import OpenAiServer, fails, says
from ....support.terminal import (
    ASKING_TOOL,
    DEMO_TOOLS,
    REQUEST,
    TWO_QUESTIONS_TOOL,
    assert_one_sentence,
    conversation_id_in,
    output_after_hint,
    run,
    run_beside,
)


class TestChatThroughAPipe:
    """Lines in, plain text out, for scripts."""

    @pytest.mark.slow
    def test_a_line_is_a_message_or_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """A number chooses an option, commands are executed, the output has no escape codes, the exit code is 0."""
        lines = (
            REQUEST,
            "2",
            "/state",
            "/events",
            "/nothing",
            "/state now",
            "/usr is full",
            "/retry",
            "/quit",
            "unsaid",
        )

        done = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "? [Table] Which table would you like?\n  1. Kikunoi - 6:30 PM" in done.stdout
        assert "You chose Nobu." in done.stdout
        assert "idle, after 1 turn and 8 events" in done.stdout
        assert "8  llm_response" in done.stdout
        assert "There is no such command; /help lists the commands." in done.stdout
        assert "/state takes no arguments." in done.stdout
        assert "You said: “/usr is full”" in done.stdout
        assert "There is no failed turn to try again." in done.stdout
        assert "unsaid" not in done.stdout
        assert "\x1b" not in done.stdout

    @pytest.mark.slow
    def test_a_command_answers_no_question(self, tmp_path: Path) -> None:
        """P15: where an answer is expected a command is executed or refused, and the question is asked again. Answers
        to other questions are kept. A path is an answer."""
        (tmp_path / "twice.py").write_text(TWO_QUESTIONS_TOOL)
        lines = ("Go", "north", "/state", "/retry", "/state now", "/usr", "Go", "/quit", "unsaid")

        done = run("chat", "--tools", "twice:ask_twice", cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "awaiting_user_response, after 1 turn and " in done.stdout
        assert "There is no failed turn to try again." in done.stdout
        assert "/state takes no arguments." in done.stdout
        assert done.stdout.count("? Where from?") == 2
        assert done.stdout.count("? Where to?") == 4
        assert '"Where from?": "North", "Where to?": "/usr"' in done.stdout
        assert "The question stays open." in done.stdout
        assert "unsaid" not in done.stdout

    def test_a_question_waits_for_the_next_process(self, tmp_path: Path) -> None:
        """P19: a question stays open when the input ends, and is asked first when the chat is resumed."""
        first = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST])
        second = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=["kikunoi"])

        assert "The question stays open." in first.stdout
        assert conversation_id_in(second.stdout) == conversation_id_in(first.stdout)
        assert "You chose Kikunoi." in second.stdout
        assert (first.returncode, second.returncode) == (0, 0)

    @pytest.mark.slow
    def test_a_call_that_asks_ends_with_the_process(self, tmp_path: Path) -> None:
        """What becomes of it is decided when the chat is resumed, so nobody is told that its question stays open."""
        (tmp_path / "asks.py").write_text(ASKING_TOOL)

        first = run("chat", "--tools", "asks:book_table", cwd=tmp_path, lines=[REQUEST])
        second = run("chat", "--resume", "--tools", "asks:book_table", cwd=tmp_path, lines=["Yes"])

        assert "The call that asks is interrupted." in first.stdout
        assert "The question stays open." not in first.stdout
        assert second.stdout.count("? Really?") == 1
        assert "The user says Yes." in second.stdout
        assert (first.returncode, second.returncode) == (0, 0)

    @pytest.mark.slow
    async def test_a_turn_that_fails_can_be_tried_again(self, tmp_path: Path) -> None:
        """P11, P33: its sentence is shown, and /retry continues it. A chat whose last turn failed exits with 1."""
        async with OpenAiServer([fails(401), says("Back ", "again."), fails(401)]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/retry", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.count("refused the key") == 2
        assert done.stdout.index("/retry tries again") < done.stdout.index("Back again.")

    @pytest.mark.slow
    async def test_what_was_said_can_be_condensed(self, tmp_path: Path) -> None:
        """/compact says once that it condenses, also if the model is asked again; a failure is one sentence. The
        summary is among the events, and a second /compact has nothing to condense."""
        async with OpenAiServer([says("Well met."), fails(500), says("They met."), says("Again.")]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/compact", "/compact", "/events", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        first, _, second = done.stdout.partition("There is nothing to condense yet.")
        assert (done.returncode, done.stderr) == (0, "")
        assert first.count("Condensing what was said so far.") == 2
        assert first.count("Condensed; the log keeps everything.") == 1
        assert "history_compacted          They met." in second
        assert second.endswith("Again.\n")

    @pytest.mark.slow
    @pytest.mark.parametrize("preset", ["talk", "explicit-response"])
    def test_resuming_brings_the_required_tools(self, preset: str, tmp_path: Path) -> None:
        """P19: by `--resume` and by the id, without `--tools` and `--preset`."""
        first = run("chat", "--preset", preset, cwd=tmp_path, lines=["hello"])

        by_id = run("chat", conversation_id_in(first.stdout), cwd=tmp_path, lines=["and you?"])
        newest = run("chat", "--resume", "--db", "turnwise.db", cwd=tmp_path, lines=["and now?"])

        assert "--tools" not in first.stdout
        assert output_after_hint(by_id).count("You said: “and you?”") == 1
        assert output_after_hint(newest).count("You said: “and now?”") == 1
        assert "missing" not in by_id.stdout + newest.stdout

    @pytest.mark.slow
    def test_there_is_nothing_to_resume(self, tmp_path: Path) -> None:
        """P33: one sentence, and no database is created."""
        assert_one_sentence(run("chat", "--resume", cwd=tmp_path), "There is no database called turnwise.db.")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_table_is_booked_by_talking(tmp_path: Path) -> None:
    """B2: with tools and a question between the talks."""
    done = run("chat", "--preset", "talk", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "2"])

    shown = output_after_hint(done)
    assert shown.index("Let me use find_table") < shown.index("? [Table]") < shown.index("You chose Nobu.")
    assert "✓" not in shown
