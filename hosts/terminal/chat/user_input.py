"""What the user says at a terminal: messages, answers to questions, and commands.

`UserInput` is the port; whatever implements it can stand in for a user. It needs no library that draws prompts, so that
a program without a terminal imports none.

What is typed while nothing reads it must not appear within an answer, nor choose an option of a menu. So the echo is
off meanwhile, and what was typed is dropped before a menu is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ....states.values.questions import UserQuestion

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
