"""What the user says at a terminal or through a pipe: messages, answers to questions, and commands.

`UserInput` is the port; whatever implements it can stand in for a user. `PipedInput` reads a script line by line, and
`Keyboard` in menus.py what is typed. Here is nothing that needs a library for prompts, so that a program without a
terminal imports none.

What is typed while nothing reads it must not appear within an answer, nor choose an option of a menu. So the echo is
off meanwhile, and what was typed is dropped before a menu is shown.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from ....states.values.questions import UserQuestion
from ..output.writer import TerminalWriter

if sys.platform != "win32":
    import fcntl
    import termios


Answer = str | Sequence[str]
"""The answer to a question: a label or free text, or a list of them where several options may be chosen."""


class FreeTextOption(NamedTuple):
    """The entry of a menu that leads to free text, and how it is mentioned where answers are read as lines."""

    label: str
    description: str
    hint: str


OWN_WORDS = FreeTextOption("Other", "in your own words", ", or your own words")


class CommandHelp(NamedTuple):
    """What a user is told of a command: what it does, and what may stand behind it.

    `argument` is empty for a command that takes none. `choices` returns arguments to offer.
    """

    description: str
    argument: str = ""
    choices: Callable[[], Iterable[str]] = tuple


Commands = Mapping[str, CommandHelp]
"""The commands that a user can enter, by their names, each with a slash in front."""

NO_COMMANDS: Commands = {}


class CommandEntered(Exception):
    """Raised when the user enters a command instead of an answer. The question may be asked again."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


def no_turn() -> bool:
    """Say that no turn is under way that could be stopped. `Pure.`"""
    return False


def command_in(line: str, commands: Collection[str]) -> str | None:
    """Return the command that a line begins with, or None. `Pure.`"""
    first_word = next(iter(line.split()), "")
    return first_word if first_word in commands else None


class UserInput(Protocol):
    """Reads what a user types, or stands in for a user. Its coroutines may be cancelled and called again.

    `commands` are those that raise `CommandEntered` at the beginning of an answer. `stop_turn` stops a turn that
    somebody else began while a message is read, and returns whether there was one; Ctrl-C does that first.
    """

    commands: Commands
    stop_turn: Callable[[], bool]

    async def next_message(self) -> str | None:
        """Return the next message or command, or None if there will be no more."""
        ...

    async def answer(self, question: UserQuestion, free_text: FreeTextOption | None = OWN_WORDS) -> Answer | None:
        """Return the answer to a question, or None if the user declines to answer.

        Without `free_text` only the options are offered, but the answer may still be any text. Raises EOFError if the
        user leaves, and `CommandEntered`.
        """
        ...

    def on_interrupt(self) -> bool:
        """Take note of Ctrl-C, and return whether it means to leave if there is nothing to cancel."""
        ...


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


DISCARDED = "What you typed in the meantime was dropped."
"""What to tell the user when `discard_typeahead` returns True."""

_LOCAL_FLAGS = 3
"""The index of the flags for the echo in the result of tcgetattr."""


@contextmanager
def echo_disabled() -> Iterator[None]:
    """Keep the terminal from showing what is typed, ^C included, while the body runs. stdin must be a terminal.

    What is typed is kept, also at Ctrl-C, until something reads it or `discard_typeahead` drops it.
    """
    if sys.platform == "win32":
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = termios.tcgetattr(sys.stdin)
    quiet[_LOCAL_FLAGS] = quiet[_LOCAL_FLAGS] & ~termios.ECHO | termios.NOFLSH
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def discard_typeahead() -> bool:
    """Drop what was typed and not read yet, and return whether a line was among it. stdin must be a terminal."""
    if sys.platform == "win32":
        return False
    unread = fcntl.ioctl(sys.stdin, termios.FIONREAD, bytes(4))
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return any(unread)
