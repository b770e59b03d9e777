"""What a law is: an invariant of conversations, as a function that raises where it does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .history import History

Law: TypeAlias = Callable[[History], None]
"""Checks the newest step of a conversation. Raises `LawBroken`, or any other exception, if the law does not hold."""


class LawBroken(AssertionError):
    """A conversation does not keep a law."""


def require(holds: bool, sentence: str, history: History) -> None:
    """Raise `LawBroken` unless `holds`: with the sentence, and where in the conversation it is."""
    if not holds:
        newest = history.newest
        raise LawBroken(f"{newest.event.type} in {newest.before.type}, step {len(history.observations)}: {sentence}")
