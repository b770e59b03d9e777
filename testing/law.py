"""How a law says that it was broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .history import History

Law: TypeAlias = Callable[[History], None]


class LawBroken(AssertionError):
    """A conversation did what none may do."""


def require(holds: bool, sentence: str, history: History) -> None:
    """Raises `LawBroken`, with a sentence that says where, unless it holds."""
    if not holds:
        newest = history.newest
        raise LawBroken(f"{newest.event.type} in {newest.before.type}, step {len(history.observations)}: {sentence}")
