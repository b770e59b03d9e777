"""Ids of tool calls that every provider accepts, each used once in a request."""

from __future__ import annotations

import re

_LEGAL_ID = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral accepts no others, and every other provider accepts these


def is_legal_id(call_id: str) -> bool:
    """Whether every provider accepts this id. `Pure.`"""
    return _LEGAL_ID.fullmatch(call_id) is not None


class CallIds:
    """Assigns ids. An id that is legal and not yet used is kept; so is one that goes back to the models that gave it.

    The id that replaces another one depends only on the calls before it. So the beginning of a growing history stays
    the same, which keeps the provider's cache of it valid.
    """

    def __init__(self) -> None:
        self._used: dict[str, None] = {}
        """The ids that were assigned, in this order."""
        self._next_number = 1

    def assign(self, wanted: str, own: str = "") -> str:
        """The id for a call whose id is `wanted`. `own` is the id that the model gave to which it is sent, which is
        preferred."""
        if own.strip() and own not in self._used:
            assigned = own
        elif is_legal_id(wanted) and wanted not in self._used:
            assigned = wanted
        else:
            assigned = self._make()
        self._used[assigned] = None
        return assigned

    @property
    def place(self) -> tuple[int, int]:
        """How many ids were assigned, and the number of the next one that is made."""
        return len(self._used), self._next_number

    def take_back(self, place: tuple[int, int]) -> None:
        """Forget the ids that were assigned since this place."""
        count, self._next_number = place
        while len(self._used) > count:
            self._used.popitem()

    def _make(self) -> str:
        while True:
            call_id = f"call{self._next_number:05}"
            self._next_number += 1
            if call_id not in self._used:
                return call_id
