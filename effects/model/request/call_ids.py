"""The ids of calls, as every provider takes them: legal, and each used once in a request."""

from __future__ import annotations

import re

_LEGAL_ID = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral takes no others; the rest take these


class Ids:
    """Gives out ids that are legal and used once; an id that is both already stays.

    What a call is renamed to depends only on what stands before it, so a history that grows keeps its beginning, and
    the provider's cache of it.
    """

    def __init__(self, before: Ids | None = None) -> None:
        self._before = before
        self._used: set[str] = set()
        self._fresh: int = 1 if before is None else before._fresh

    def __contains__(self, name: str) -> bool:
        return name in self._used or (self._before is not None and name in self._before)

    def take(self, wanted: str) -> str:
        """The id for a call that wants to be called so."""
        given = wanted if _LEGAL_ID.fullmatch(wanted) and wanted not in self else self._next()
        self._used.add(given)
        return given

    def keep(self, later: Ids) -> None:
        """Take over what `later`, made with these `before` it, gave out."""
        self._used |= later._used
        self._fresh = later._fresh

    def _next(self) -> str:
        while True:
            name = f"call{self._fresh:05}"
            self._fresh += 1
            if name not in self:
                return name
