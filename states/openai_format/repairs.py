"""Collects what was repaired in a given history, in sentences for the application's developer."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from ..values.value import shortened

MAX_REPAIRS = 1_000
"""The most sentences that are kept of one history. Chosen so that they can be read; one more counts the others."""

MAX_QUOTED_NAME = 60
"""The most characters of an id, a name or a type that a sentence quotes."""

ReportRepair = Callable[[str], None]
"""Takes the sentence about a repair of one message."""


class Repairs:
    """The repairs so far. Each names the message by its place in the list that was given."""

    def __init__(self) -> None:
        self._sentences: list[tuple[int, str]] = []
        self._count = 0

    def add(self, place: int, sentence: str) -> None:
        """Note a repair of the message at this place."""
        self._count += 1
        if self._count <= MAX_REPAIRS:
            self._sentences.append((place, f"messages[{place}]: {sentence}"))

    @property
    def sentences(self) -> tuple[str, ...]:
        """All repairs, in the order of the messages."""
        ordered = sorted(self._sentences, key=itemgetter(0))
        more = self._count - len(self._sentences)
        rest = [f"{more} more repairs were made."] if more else []
        return (*(sentence for _, sentence in ordered), *rest)


def quoted(name: object) -> str:
    """An id, a name or a type as a sentence quotes it. `Pure.`"""
    return repr(shortened(str(name), MAX_QUOTED_NAME))
