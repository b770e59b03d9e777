"""Lines on a terminal: what each event says, errors in a sentence, and text that commands nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise import Schedule
from turnwise.effects.printable import printable
from turnwise.hosts.terminal.output.event_lines import MAX_SUMMARY, summary
from turnwise.hosts.terminal.output.lines import one_line
from turnwise.hosts.terminal.output.writer import TerminalWriter
from turnwise.states import (
    AgentMessage,
    CallRestricted,
    ChoiceQuestion,
    Event,
    Opened,
    ProfileTransferred,
    QuestionOption,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    WakeUp,
)

from ....support.terminal import COMMAND, assert_one_sentence, run
from ....support.walks import NOON

# --- Text from models and tools, made fit for a terminal.


class TestPrintable:
    """A terminal interprets control characters, so no text may contain any."""

    @pytest.mark.parametrize(
        ("said", "shown"),
        [
            ("\x1b[2J\x1b[1;31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
            ("a\rb\x08c\x00\x9bd\u202ee", "abcde"),
            ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
            ("half \ud800", "half \N{REPLACEMENT CHARACTER}"),
        ],
    )
    def test_control_characters_are_removed(self, said: str, shown: str) -> None:
        """Colours, titles, links, carriage returns, and marks that reverse the direction of a text."""
        assert printable(said) == shown

    def test_one_line_is_cut_off_with_an_ellipsis(self) -> None:
        """Whitespace of any kind becomes one space."""
        assert (one_line("a\n b\tc"), one_line("abcdef", 4)) == ("a b c", "abc…")


# --- The lines of `turnwise show --events`: what each event says in short.


HOURLY = Schedule(every=3600, task="Look around.")
DAILY = Schedule(cron="30 8 * * MON-FRI", zone="Europe/Berlin", task="Read the news.")


def of(kind: type[Event], **fields: Any) -> Event:
    """An event of this type."""
    return kind.model_validate({"type": kind.model_fields["type"].default, "event_id": "1", "at": NOON, **fields})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (of(Opened, schedule=HOURLY), "model default, every 3600 s"),
        (of(ScheduleChanged, schedule=DAILY), "cron 30 8 * * MON-FRI Europe/Berlin: Read the news."),
        (of(ScheduleChanged), "none"),
        (of(WakeUp, due=NOON, next_wake=NOON + timedelta(hours=1), text="Look around."), "Look around."),
        (of(ProfileTransferred, profile="cook"), "cook"),
    ],
    ids=lambda value: value.type if isinstance(value, Event) else "",
)
def test_events_of_schedules_and_profiles(event: Event, line: str) -> None:
    """When a conversation wakes up, what it then does, and to which profile it was handed over."""
    assert summary(event) == line
    assert len(line) < MAX_SUMMARY


WHEN = ChoiceQuestion(
    question="When?",
    header="Time",
    options=(QuestionOption(label="6 PM", description="early"), QuestionOption(label="8 PM", description="late")),
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (AgentMessage(event_id="1", at=NOON, origin="scout", text="Rain."), "scout: Rain."),
        (SubAgentAsked(at=NOON, effect_id=7, call_id="call_1_0", questions=(WHEN,)), "7: When?"),
        (SubAgentAsked(at=NOON, effect_id=7, call_id="call_1_0"), "7: no longer asks"),
        (SubAgentFinished(at=NOON, effect_id=7, outcome="Found.", status="completed"), "7 completed: Found."),
        (SubAgentFinished(at=NOON, effect_id=7, outcome="", status="failed"), "7 failed"),
        (CallRestricted(at=NOON, call_id="call_1_0", crash="at_most_once"), "call_1_0 at most once"),
        (CallRestricted(at=NOON, call_id="call_1_0", crash="pure", approval=True), "call_1_0 pure, needs approval"),
    ],
    ids=lambda value: value.type if isinstance(value, Event) else "",
)
def test_events_of_other_agents(event: Event, line: str) -> None:
    """Who writes, what becomes of the sub-agents that each effect started, and under what another process takes a call
    over."""
    assert summary(event) == line


# --- Error messages and exit codes of the command.


@pytest.mark.slow
class TestErrors:
    """P33: one sentence on stderr, exit code 2, no traceback."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["list", "--db", "missing.db"], "There is no database to read: missing.db."),
            (["list", "--db", "."], ". is a folder, not a database."),
            (["replay", "--all", "--db", "text.db"], "text.db is not a SQLite database."),
            (["list", "--db", "other.db"], "other.db is the database of another program."),
            (["list", "--db", "oracle://host/db"], "oracle is not supported"),
            (["chat", "--preset", "nonsense"], "There is no preset called nonsense. Known: assistant, reply_flow,"),
            (["chat", "--preset", "sub-agent"], "There is no preset called sub-agent. Known: assistant, reply_flow,"),
            (["chat", "--tools", "nonsense"], "There is no built-in tool called nonsense."),
            (["chat", "--tools", "nonsense:tool"], "There is no module called nonsense"),
            (["chat", "--tools", "broken:tool"], "The module broken cannot be imported: no good."),
            (["chat", "--tools", "mine:nothing"], "There is no nothing in mine."),
            (["chat", "--tools", "mine:untyped"], "The parameter x of untyped has no type."),
            (["demo", "--tools", "mine:number"], "mine:number is not a function"),
            (["chat", "--tools", "a b:c"], "a b:c does not name a tool"),
        ],
    )
    def test_it_is_one_sentence(self, arguments: list[str], sentence: str, tmp_path: Path) -> None:
        """Files that are no databases, and tools and presets that do not exist."""
        (tmp_path / "text.db").write_text("Dear diary, " * 100, encoding="utf-8")
        (tmp_path / "broken.py").write_text("raise RuntimeError('no good')", encoding="utf-8")
        (tmp_path / "mine.py").write_text("number = 4\ndef untyped(x): ...\n", encoding="utf-8")
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            other.execute("CREATE TABLE notes (text)")

        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["chat", "--model", "nonsense"], "The model 'nonsense' is not known"),
            (["demo", "--model", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY."),
        ],
    )
    def test_a_model_that_cannot_be_asked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path
    ) -> None:
        """An unknown model, and a provider without a key. No database is created."""
        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_extra_is_one_sentence(self, tmp_path: Path) -> None:
        """Without the libraries of the extra `terminal` the command says how to install it."""
        program = "import sys; sys.modules['questionary'] = None; from turnwise.hosts.terminal import main; main()"

        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

        assert_one_sentence(done, 'pip install "turnwise[terminal]"')

    def test_a_full_disk_is_one_sentence(self, tmp_path: Path) -> None:
        """The error is reported once, and not again when Python exits."""
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            done = subprocess.run([*COMMAND, "diagram"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (
            2,
            "The operating system reports an error: No space left on device.\n",
        )

    def test_a_closed_pipe_is_no_error_message(self, tmp_path: Path) -> None:
        """`turnwise diagram | head -1` ends without a message when head has ended."""
        reading, writing = os.pipe()
        os.close(reading)

        with os.fdopen(writing, "w") as pipe:
            done = subprocess.run([*COMMAND, "diagram"], stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (1, "")


# --- Writing to stdout.


def test_a_deferred_note_waits_for_the_end_of_a_streamed_text(capsys: pytest.CaptureFixture[str]) -> None:
    """If nothing is being streamed it is written at once."""
    writer = TerminalWriter(interactive=False)
    writer.defer_note("The line is down.")
    writer.stream("The table ")
    writer.defer_note("The line is down again.")
    writer.stream("is booked.")
    writer.finish()

    assert capsys.readouterr().out == "The line is down.\nThe table is booked.\nThe line is down again.\n"


class TestAboveAPrompt:
    """While a prompt is at the end of the screen, nothing can be drawn again above it."""

    def test_an_answer_is_written_when_it_is_complete(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Rendered, in one piece."""
        writer = TerminalWriter(interactive=True, markdown=True)
        with writer.above_prompt():
            writer.stream_answer("It is **do")
            writer.stream_answer("ne**.")
            before = capsys.readouterr().out
            writer.finish()

            assert (before, capsys.readouterr().out.strip()) == ("", "It is done.")

    def test_a_note_waits_for_its_end(self, capsys: pytest.CaptureFixture[str]) -> None:
        """As it does without a prompt."""
        writer = TerminalWriter(interactive=True, markdown=True)
        with writer.above_prompt():
            writer.stream_answer("Done.")
            writer.defer_note("The line is down.")
            writer.finish()

        assert capsys.readouterr().out.split("\n") == ["Done.", "The line is down.", ""]

    def test_an_answer_that_is_taken_back_is_never_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The model begins it again."""
        writer = TerminalWriter(interactive=True, markdown=True)
        with writer.above_prompt():
            writer.stream_answer("It is")
            taken_back = writer.discard_answer()
            writer.answer("Done.")

        assert (taken_back, capsys.readouterr().out) == (True, "Done.\n")

    def test_an_answer_goes_on_where_the_prompt_ends(self, capsys: pytest.CaptureFixture[str]) -> None:
        """What has come so far is shown, and the rest is streamed behind it."""
        writer = TerminalWriter(interactive=True, markdown=True)
        with writer.above_prompt():
            writer.stream_answer("It is ")
        writer.stream_answer("done.")
        writer.finish()

        assert "It is done." in capsys.readouterr().out

    def test_no_spinner_turns(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It would be drawn over the prompt."""
        writer = TerminalWriter(interactive=True, markdown=True)
        with writer.above_prompt():
            writer.spin("thinking")

        assert capsys.readouterr().out == ""


def test_a_blank_line_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """One is written where the line before has text."""
    writer = TerminalWriter(interactive=False)
    writer.line("One.")
    writer.blank_line()
    writer.blank_line()
    writer.line("Two.")

    assert capsys.readouterr().out == "One.\n\nTwo.\n"
