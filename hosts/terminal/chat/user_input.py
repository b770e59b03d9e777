"""Whoever sits on the other side: says things, and answers what is asked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from ....states.values.questions import UserQuestion

Answer = str | Sequence[str]
"""What is answered to a question; a list for a multi-select."""


class Other(NamedTuple):
    """The way to an answer that is none of the options: how a menu calls it, and a hint where lines are read."""

    label: str
    description: str
    hint: str


OTHER = Other("Other", "in your own words", ", or your own words")


class Commanded(Exception):
    """In place of an answer a command was given; nothing is answered, and the same may be asked again."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.line = line


def command_in(line: str, commands: Collection[str]) -> str | None:
    """The command that a line begins with, or None. `Pure.`"""
    first = next(iter(line.split()), "")
    return first if first in commands else None


class UserInput(Protocol):
    """A person, or what stands for one. What waits for it may be cancelled, and asked again later.

    `commands` are the words that answer no question, but raise `Commanded` where they begin an answer.
    """

    commands: Collection[str]

    async def says(self) -> str | None:
        """The next thing that is said, or None when nothing more will be."""
        ...

    async def answer(self, question: UserQuestion, other: Other | None = OTHER) -> Answer | None:
        """The answer, or None for a person who declines. Without `other` only the options are offered; words of one's
        own may come all the same. Raises EOFError for a person who leaves instead, and `Commanded`."""
        ...

    def interrupted(self) -> bool:
        """Be told that Ctrl-C was pressed; whether that means to leave, where nothing is left to cancel."""
        ...
