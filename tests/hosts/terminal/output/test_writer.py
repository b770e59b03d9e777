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
