"""The input of a script, through a pipe: each line is a message, or the answer to a question."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from ....states.values.questions import UserQuestion
from ..output.writer import TerminalWriter
from .user_input import NO_COMMANDS, OWN_WORDS, CommandEntered, Commands, FreeTextOption, command_in, no_turn


class PipedInput:
    """Reads stdin line by line, and writes each question with its options numbered.

    An answer is a number, a label, or free text; where several options may be chosen, numbers or labels with commas
    between them.
    """

    def __init__(self, writer: TerminalWriter) -> None:
        self.commands: Commands = NO_COMMANDS
        self.stop_turn: Callable[[], bool] = no_turn
        self._writer = writer
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread that waits for a line cannot be stopped. As a daemon it does not keep the program from ending.
        threading.Thread(target=self._read, daemon=True, name="turnwise-lines").start()

    async def next_message(self) -> str | None:
        """Return the next line that is not blank, or None at the end of the input."""
        return await self._next_line()

    async def answer(self, question: UserQuestion, free_text: FreeTextOption | None = OWN_WORDS) -> str | list[str]:
        """Return what the next line answers. Raises EOFError at the end of the input, and `CommandEntered`."""
        self._writer.line(f"{question_lines(question)}\n  {_hint(question, free_text)}:")
        line = await self._next_line()
        if line is None:
            raise EOFError
        if command_in(line, self.commands):
            raise CommandEntered(line)
        return parse_answer(line, question)

    def on_interrupt(self) -> bool:
        """Between two turns Ctrl-C leaves at once."""
        return True

    async def _next_line(self) -> str | None:
        while (line := await self._lines.get()) is not None:
            if line.strip():
                return line
        self._lines.put_nowait(None)
        return None

    def _read(self) -> None:
        # The event loop may be closed while this thread waits for a line.
        with suppress(RuntimeError):
            for line in _lines_of_stdin():
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)


def _lines_of_stdin() -> Iterator[str]:
    # Python has no stdin if it was closed before the start.
    if sys.stdin is not None:
        # A stream of its own: at exit Python locks the buffer of sys.stdin, in which this thread may still wait.
        with io.FileIO(sys.stdin.fileno(), closefd=False) as stream:
            while raw := stream.readline():
                yield raw.decode(errors="replace").rstrip("\r\n")


def _hint(question: UserQuestion, free_text: FreeTextOption | None) -> str:
    """Return how a line can answer the question."""
    if not question.options:
        return "Your answer"
    hint = "Numbers or labels with commas between them" if question.multi_select else "A number, a label"
    return f"{hint}{free_text.hint if free_text else ''}"


def question_lines(question: UserQuestion) -> str:
    """Return a question and its numbered options as lines of text. `Pure.`"""
    header = f"[{question.header}] " if question.header else ""
    lines = [f"? {header}{question.question}"]
    for number, option in enumerate(question.options, start=1):
        lines.append(f"  {number}. {option.label}{f' - {option.description}' if option.description else ''}")
        lines += [f"     {line}" for line in (option.preview or "").splitlines()]
    return "\n".join(lines)


def parse_answer(line: str, question: UserQuestion) -> str | list[str]:
    """Return the labels that a line names, or the line itself as free text. `Pure.`"""
    label = _label(line, question)
    if not question.multi_select:
        return label or line
    parts = [_label(part, question) for part in line.split(",")]
    labels = [label] if label else [part for part in parts if part is not None]
    return list(dict.fromkeys(labels)) if label or None not in parts else [line]


def _label(text: str, question: UserQuestion) -> str | None:
    """Return the label that the text names. A label has precedence over a number, because "2" may be a label."""
    wanted = text.strip().casefold()
    labels = [option.label for option in question.options]
    numbered = {str(number): label for number, label in enumerate(labels, start=1)}
    return {**numbered, **{label.strip().casefold(): label for label in labels}}.get(wanted)
