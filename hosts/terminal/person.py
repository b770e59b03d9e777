"""Whoever sits on the other side: says things, and answers what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...states.questions import UserQuestion

Given = Mapping[str, str | Sequence[str]]
"""Answers by the text of their question; a list of them for a multi-select."""


class Person(Protocol):
    """A person, or what stands for one. What waits for it may be cancelled, and asked again later."""

    async def says(self) -> str | None:
        """The next thing that is said, or None when nothing more will be."""
        ...

    async def answers(self, questions: Sequence[UserQuestion]) -> Given | None:
        """The answers, all of them, or None for a person who declines. Raises EOFError for one who leaves instead."""
        ...

    def interrupted(self) -> bool:
        """Be told that Ctrl-C was pressed; whether that means to leave, where nothing is left to cancel."""
        ...
