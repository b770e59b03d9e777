"""Writing to stdout."""

from __future__ import annotations

import pytest

from turnwise.hosts.terminal.output.writer import TerminalWriter


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
