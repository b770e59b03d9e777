"""Ids of tool calls that every provider accepts, each used once in a request."""

from __future__ import annotations

import re

_LEGAL_ID = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral accepts no others, and every other provider accepts these


class CallIds:
    """Assigns ids. An id that is legal and not yet used is kept.

    The id that replaces another one depends only on the calls before it. So the beginning of a growing history stays
    the same, which keeps the provider's cache of it valid. `earlier` are the ids of the messages before.
    """

    def __init__(self, earlier: CallIds | None = None) -> None:
        self._earlier = earlier
        self._used: set[str] = set()
        self._next_number: int = 1 if earlier is None else earlier._next_number

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._used or (self._earlier is not None and call_id in self._earlier)

    def assign(self, wanted: str) -> str:
        """The id for a call whose own id is `wanted`."""
        assigned = wanted if _LEGAL_ID.fullmatch(wanted) and wanted not in self else self._make()
        self._used.add(assigned)
        return assigned

    def absorb(self, later: CallIds) -> None:
        """Add the ids that `later` has assigned, which was made with `earlier=self`."""
        self._used |= later._used
        self._next_number = later._next_number

    def _make(self) -> str:
        while True:
            call_id = f"call{self._next_number:05}"
            self._next_number += 1
            if call_id not in self:
                return call_id
