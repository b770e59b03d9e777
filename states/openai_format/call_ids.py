"""Reads the ids of calls in a given history, and replaces those that are missing, repeated or too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..values.history import effect_number
from .repairs import ReportRepair, quoted

MAX_CALL_ID = 200
"""The most characters of the id of a call. Providers make ids of up to 64 characters, gateways longer ones."""

MAX_EFFECT = 1_000_000_000
"""The largest number of an effect in a given id. Chosen so that the numbers behind it fit every database."""


class UniqueIds:
    """Gives each call an id that no other call of the history has. An id that can be kept is kept."""

    def __init__(self, given: Iterable[str]) -> None:
        """`given` are all ids in the history: none of them is given to another call."""
        self._given = frozenset(given)
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def assign(self, wanted: str, place: int, report: ReportRepair) -> str:
        """Return the id for a call of the message at `place`; `wanted` is the one that it has, or empty."""
        if wanted and wanted not in self._used and len(wanted) <= MAX_CALL_ID and effect_number(wanted) <= MAX_EFFECT:
            assigned = wanted
        else:
            assigned = next(self._free(wanted, place))
            report(f"{_fault(wanted, wanted in self._used)}; it became {quoted(assigned)}.")
        self._used.add(assigned)
        return assigned

    def _free(self, wanted: str, place: int) -> Iterator[str]:
        """Yield ids that no call of the history has, made from the one that it wanted, or from its place. None of them
        reads like an id that this library makes."""
        can_be_extended = wanted and len(wanted) <= MAX_CALL_ID - 12 and effect_number(wanted) <= MAX_EFFECT
        stem = f"{wanted}_r" if can_be_extended else f"history_{place}_"
        while True:
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            made = f"{stem}{number}"
            if made not in self._given and made not in self._used:
                yield made


def _fault(wanted: str, is_repeated: bool) -> str:
    if not wanted:
        return "A call has no id"
    return f"The id {quoted(wanted)} {'is repeated' if is_repeated else 'is too long'}"


def id_in(holder: Mapping[str, Any], name: str, report: ReportRepair) -> str:
    """Return the id that a call or a result holds under this name, as a text; empty if it holds none."""
    found = holder.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        report(f"The {name} {found} is a number; it became a text.")
        return str(found)
    return found if isinstance(found, str) else ""
