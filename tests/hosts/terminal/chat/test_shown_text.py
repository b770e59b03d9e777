"""The answer under way, and answers that begin again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pytest

from turnwise import TokenUpdate
from turnwise.hosts.terminal.chat.screen import ShownText
from turnwise.hosts.terminal.output.writer import TerminalWriter

from ....support.screens import FakeScreen


def token(text: str, *, attempt: int = 1, request: int = 1, from_start: bool = False) -> TokenUpdate:
    """Return a piece of an answer."""
    return TokenUpdate(text=text, kind="text", turn=1, request=request, attempt=attempt, from_start=from_start)


class FakeTerminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


OpenWriter = Callable[[], tuple[TerminalWriter, FakeTerminal]]


@pytest.fixture
def open_writer(monkeypatch: pytest.MonkeyPatch) -> OpenWriter:
    """Return a function that opens a writer on a terminal, to be called within the test: pytest has its own stdout."""

    def open_() -> tuple[TerminalWriter, FakeTerminal]:
        output = FakeTerminal()
        for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "60"), ("LINES", "12")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout", output)
        return TerminalWriter(interactive=True, markdown=True), output

    return open_


def on_screen(output: io.StringIO) -> str:
    """Return what a user sees of the output."""
    screen = FakeScreen(60, 12)
    screen.write(output.getvalue())
    return screen.text


class TestOnATerminal:
    """What an attempt wrote disappears when another one begins."""

    def test_another_attempt_replaces_what_was_shown(self, open_writer: OpenWriter) -> None:
        """The same request, asked again."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        for piece in ("# Half\n\n- an ", "answer"):
            shown.add(token(piece))

        shown.add(token("All ", attempt=2))
        shown.add(token("of it.", attempt=2))
        shown.end_answer("All of it.")

        assert on_screen(output) == "All of it."

    def test_a_broken_answer_that_left_the_screen_stays_with_a_note(self, open_writer: OpenWriter) -> None:
        """It cannot be reached any more, and must not be taken for the answer."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("\n\n".join(f"paragraph {number}" for number in range(30))))

        assert shown.take_back()
        shown.add(token("Again.", attempt=2))
        shown.end_answer("Again.")

        assert on_screen(output).endswith("This answer broke off.\nAgain.")

    def test_a_token_with_everything_from_the_start_replaces_what_is_shown(self, open_writer: OpenWriter) -> None:
        """The screen was too slow for some tokens."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        shown.add(token("One "))
        shown.add(token("One two ", from_start=True))
        shown.add(token("Three", from_start=True))
        shown.end_answer("Three four")

        assert on_screen(output) == "Three four"

    async def test_pieces_that_come_fast_are_all_shown(self, open_writer: OpenWriter) -> None:
        """They are drawn together a moment later, also if no other piece comes."""
        writer, output = open_writer()
        shown = ShownText(writer, thoughts=False, by_tool=False)
        for piece in ["a", "b", "c", "d", "e", "f"]:
            shown.add(token(f"{piece} "))
        while on_screen(output) != "a b c d e f":
            await asyncio.sleep(0.01)

        writer.finish()
        assert on_screen(output) == "a b c d e f"


def test_through_a_pipe_a_broken_answer_is_followed_by_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be taken back there; the answer is written as the model wrote it."""
    shown = ShownText(TerminalWriter(interactive=False, markdown=True), thoughts=False, by_tool=False)
    shown.add(token("**Half"))
    shown.add(token("**All**", attempt=2))
    shown.end_answer("**All**")

    assert capsys.readouterr().out == "**Half\n  This answer broke off.\n**All**\n"


def test_no_colour_is_honoured(open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR keeps bold and the like, and takes the colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    writer, output = open_writer()
    writer.answer("# A `code`\n\n```python\nx = 1\n```")

    assert "\x1b[1" in output.getvalue()
    assert "\x1b[3" not in output.getvalue().replace("\x1b[39", "")
